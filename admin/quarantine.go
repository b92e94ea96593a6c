package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// filterNames are the parameters that select records, in the order of
// [operator.filter].
var filterNames = [...]string{"kind", "reason", "type", "subscription", "principal", "root", "id", "fingerprint"}

func filterParams() []gateway.Param {
	var out []gateway.Param
	for _, name := range filterNames {
		out = append(out, gateway.Param{In: "query", Name: name, Doc: "Only records with this " + name})
	}
	return out
}

func (o *operator) quarantineRoutes() []gateway.Route {
	const tag = "quarantine"
	return []gateway.Route{
		{
			Method: http.MethodGet, Path: "/v1/quarantine", ID: "listQuarantine", Tag: tag, Handle: o.listQuarantine,
			Summary: "Quarantined events, newest first", Params: pageParams(filterParams()...), Responses: ok("Records without payloads", api.Quarantine{}),
			Description: "Without the role viewer: refusals of what the caller published itself.",
		},
		{
			Method: http.MethodGet, Path: "/v1/quarantine/groups", ID: "groupQuarantine", Tag: tag, Role: headgate.RoleViewer, Handle: o.quarantineGroups,
			Summary: "Quarantined events by fault", Params: filterParams(), Responses: ok("Groups, largest first, and what was only counted", api.QuarantineGroups{}),
		},
		{
			Method: http.MethodGet, Path: "/v1/quarantine/{qid}", ID: "getQuarantined", Tag: tag, Handle: o.getQuarantined,
			Summary: "One record with its payload and all that is known", Responses: ok("The record", api.QuarantinedWhole{}),
		},
	}
}

// kinds are what a selection may ask for.
func kinds() []store.QuarantineKind {
	return []store.QuarantineKind{store.KindRefused, store.KindExtinguished, store.KindParked, store.KindExpired, store.KindMended}
}

// filter reads the selection. Callers who are no viewers see what was refused
// of what they published, and what was parked of a subscription that they
// consume: the faults of a consumer are not the publisher's to read.
func (o *operator) filter(c *gateway.Call) (store.QuarantineFilter, error) {
	f := store.QuarantineFilter{
		Kind: store.QuarantineKind(c.Query("kind")), Reason: c.Query("reason"), Type: c.Query("type"), Subscription: c.Query("subscription"),
		Principal: c.Query("principal"), Root: c.Query("root"), ID: c.Query("id"), Fingerprint: c.Query("fingerprint"),
	}
	if f.Kind != "" && !slices.Contains(kinds(), f.Kind) {
		return f, headgate.NewError(headgate.CodeInvalidArgument, "kind must be refused, extinguished, parked, expired or mended.")
	}
	if c.Principal.Can(headgate.RoleViewer) {
		return f, nil
	}
	if f.Subscription != "" {
		if !o.consumes(c, f.Subscription) {
			return f, notFound("subscription")
		}
		return f, nil
	}
	f.Principal = c.Principal.Name
	if f.Kind == "" {
		f.Kind = store.KindRefused
	}
	if f.Kind != store.KindRefused && f.Kind != store.KindExtinguished && f.Kind != store.KindMended {
		return f, headgate.NewError(headgate.CodeInvalidArgument, "kind %s is the consumer's: name a subscription that you consume.", f.Kind)
	}
	return f, nil
}

// consumes reports whether the caller is who a subscription delivers to.
func (o *operator) consumes(c *gateway.Call, subscription string) bool {
	s, err := o.Router.Get(c.Context(), subscription)
	return err == nil && s.Spec.As == c.Principal.Name
}

// mayRead reports whether the caller may see one record.
func (o *operator) mayRead(c *gateway.Call, r *store.QuarantineRecord) bool {
	switch {
	case c.Principal.Can(headgate.RoleViewer):
		return true
	case r.Subscription != "": // of a delivery
		return o.consumes(c, r.Subscription)
	}
	return r.Principal == c.Principal.Name
}

func (o *operator) listQuarantine(c *gateway.Call) error {
	limit, err := c.QueryInt("limit", 100, 1000)
	if err != nil {
		return err
	}
	f, err := o.filter(c)
	if err != nil {
		return err
	}
	f.After, f.Limit = c.Query("cursor"), limit
	records, err := o.Quarantine.List(c.Context(), f)
	if err != nil {
		return err
	}
	out := api.Quarantine{Records: make([]api.Quarantined, len(records))}
	for i := range records {
		out.Records[i] = quarantinedOf(&records[i])
	}
	if len(records) == limit {
		out.Next = records[limit-1].QID
	}
	return c.JSON(http.StatusOK, out)
}

func quarantinedOf(r *store.QuarantineRecord) api.Quarantined {
	v := quarantine.ViewOf(r)
	return api.Quarantined{
		QID: v.QID, Kind: v.Kind, Reason: v.Reason, State: v.State, Fingerprint: v.Fingerprint, Family: v.Family,
		Source: v.Source, ID: v.ID, Type: v.Type, RootID: v.Root, Cause: v.Cause, Subscription: v.Subscription, Stream: v.Stream,
		Position: v.Position, Principal: v.Principal, Message: v.Message, Created: v.Created, Expires: v.Expires,
	}
}

func (o *operator) quarantineGroups(c *gateway.Call) error {
	f, err := o.filter(c)
	if err != nil {
		return err
	}
	groups, err := o.Quarantine.Groups(c.Context(), f)
	if err != nil {
		return err
	}
	overflow, err := o.overflow(c.Context())
	if err != nil {
		return err
	}
	out := api.QuarantineGroups{Groups: make([]api.QuarantineGroup, len(groups)), Overflow: overflow}
	for i, g := range groups {
		out.Groups[i] = api.QuarantineGroup{
			Fingerprint: g.Fingerprint, Family: g.Family, Kind: string(g.Kind), Reason: g.Reason, Type: g.Type, Subscription: g.Subscription,
			Message: g.Message, Count: g.Count, First: g.First, Last: g.Last, Sample: g.Sample,
		}
	}
	return c.JSON(http.StatusOK, out)
}

func (o *operator) overflow(ctx context.Context) ([]api.QuarantineOverflow, error) {
	rows, err := o.Quarantine.Overflow(ctx)
	if err != nil {
		return nil, err
	}
	var out []api.QuarantineOverflow
	for _, r := range rows {
		out = append(out, api.QuarantineOverflow{Principal: r.Principal, Reason: r.Reason, Type: r.Type, Count: r.Count, Last: r.Last})
	}
	return out, nil
}

func (o *operator) getQuarantined(c *gateway.Call) error {
	r, err := o.Quarantine.Show(c.Context(), c.Path("qid"))
	if err != nil {
		return err
	}
	if !o.mayRead(c, &r) {
		return notFound("record")
	}
	v := quarantine.ViewOf(&r)
	out := api.QuarantinedWhole{
		Quarantined: quarantinedOf(&r), ContentType: v.ContentType, Body: v.Body, BodyBase64: v.BodyBase64, BodyClipped: v.BodyClipped, Detail: v.Detail,
	}
	if len(r.Body) > 0 && !v.BodyClipped {
		sum := sha256.Sum256(r.Body)
		out.BodySHA256 = hex.EncodeToString(sum[:])
	}
	o.readAvro(c, &r, &out)
	return c.JSON(http.StatusOK, out)
}

// maxBodyJSON bounds the JSON of a recorded payload in Avro, in bytes.
const maxBodyJSON = 64 << 10

// readAvro adds what a recorded payload in Avro says, where that can be read.
func (o *operator) readAvro(c *gateway.Call, r *store.QuarantineRecord, out *api.QuarantinedWhole) {
	if out.BodyClipped || r.Type == "" || !headgate.IsAvro(r.ContentType) {
		return
	}
	subject, dataschema := cmp.Or(o.Topology.Lookup(r.Type).Contract, r.Type), ""
	if d, err := quarantine.DetailOf(r); err == nil && d.Event != nil {
		dataschema = d.Event.DataSchema
	}
	text, ref, err := o.Registry.Recorded(c.Context(), dataschema, subject, r.Body)
	if err != nil {
		return // the bytes and the report are there
	}
	if out.BodyJSONClipped = len(text) > maxBodyJSON; out.BodyJSONClipped {
		text = bytes.ToValidUTF8(text[:maxBodyJSON], nil)
	}
	out.BodyJSON, out.BodyContract = string(text), ref.String()
}
