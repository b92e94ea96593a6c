package admin

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/store"
)

func (o *operator) contractRoutes() []gateway.Route {
	const tag = "contracts"
	return []gateway.Route{
		{
			Method: http.MethodGet, Path: "/v1/contracts", ID: "listContracts", Tag: tag, Handle: o.listContracts,
			Summary: "The latest version of every contract", Params: pageParams(), Responses: ok("Contracts by subject", api.Contracts{}),
			Description: "Without the role viewer: those of types that the caller may emit or listen to.",
		},
		{
			Method: http.MethodPut, Path: "/v1/contracts/{subject}", ID: "putContract", Tag: tag, Role: headgate.RoleDeveloper, Handle: o.putContract,
			Summary:     "Register a version of a contract",
			Description: "The body is the schema itself. The very schema that is the latest already changes nothing.",
			Requests: []gateway.Body{
				{Media: api.TypeSchema, Doc: "JSON Schema, draft 4 to 2020-12"},
				{Media: api.TypeJSON, Doc: "The same"},
				{Media: api.TypeAvroSchema, Doc: "Avro schema"},
			},
			Responses: []gateway.Response{
				{Status: http.StatusCreated, Doc: "A new version", Of: api.Contract{}},
				{Status: http.StatusOK, Doc: "Unchanged", Of: api.Contract{}},
			},
		},
		{
			Method: http.MethodGet, Path: "/v1/contracts/{subject}", ID: "getContract", Tag: tag, Handle: o.getContract,
			Summary: "One version of a contract, with its schema", Responses: ok("The contract", api.Contract{}),
			Params: []gateway.Param{{In: "query", Name: "version", Type: "integer", Doc: "Default: the latest"}},
		},
		{
			Method: http.MethodGet, Path: "/v1/contracts/{subject}/versions", ID: "listContractVersions", Tag: tag, Handle: o.contractVersions,
			Summary: "All versions of a contract, deleted ones included", Params: pageParams(), Responses: ok("Versions in order", api.Contracts{}),
		},
		{
			Method: http.MethodDelete, Path: "/v1/contracts/{subject}", ID: "deleteContract", Tag: tag, Role: headgate.RoleDeveloper, Handle: o.deleteContract,
			Summary: "Delete a version softly, or all", Responses: ok("How many were deleted", api.Deleted{}),
			Params: []gateway.Param{{In: "query", Name: "version", Type: "integer", Doc: "Default: all"}},
		},
		{
			Method: http.MethodPost, Path: "/v1/contracts/{subject}/check", ID: "checkContract", Tag: tag, Handle: o.checkContract,
			Summary: "Check a payload without publishing it", Responses: ok("It passes", api.Checked{}),
			Description: "Answers with the same problem that publishing would give, and says where publishing would mend the payload first.",
			Requests: []gateway.Body{
				{Media: api.TypeJSON, Doc: "The payload, as it would be the data of an event"},
				{Media: headgate.MediaTypeAvro, Doc: "The same in Avro binary, with or without a frame, where the contract is Avro"},
			},
		},
	}
}

func (o *operator) listContracts(c *gateway.Call) error {
	all, err := o.Registry.List(c.Context())
	if err != nil {
		return err
	}
	seen := make([]store.Contract, 0, len(all))
	for i := range all {
		if maySee(c.Principal, all[i].Subject) {
			seen = append(seen, all[i])
		}
	}
	cut, next, err := page(c, seen, func(s *store.Contract) string { return s.Subject })
	if err != nil {
		return err
	}
	out := api.Contracts{Contracts: make([]api.Contract, len(cut)), Next: next}
	for i := range cut {
		out.Contracts[i] = o.contractOf(&cut[i], false)
	}
	return c.JSON(http.StatusOK, out)
}

// contractOf describes a stored version. What the compiled contract alone
// knows is there for versions in use.
func (o *operator) contractOf(s *store.Contract, whole bool) api.Contract {
	out := api.Contract{
		Subject: s.Subject, Version: s.Version, Type: typeOf(s), Digest: s.Digest, Draft: s.Draft, Deleted: s.Deleted, Created: s.Created, By: s.By,
	}
	if live := o.Registry.Lookup(s.Subject); live != nil && live.Ref().Version == s.Version {
		ref := live.Ref()
		out.Engine, out.Why = ref.Engine, ref.Why
	}
	if whole {
		out.Schema = s.Schema
	}
	return out
}

// typeOf is the type of a stored contract; rows of old have none, and are JSON.
func typeOf(s *store.Contract) string {
	t, _ := contract.ParseType(s.Type)
	return string(t)
}

func (o *operator) putContract(c *gateway.Call) error {
	media, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	kind := contract.TypeJSON
	switch {
	case err == nil && media == api.TypeAvroSchema:
		kind = contract.TypeAvro
	case err != nil, media != api.TypeSchema && media != api.TypeJSON:
		return &headgate.Error{
			Code: headgate.CodeUnsupportedMediaType, Detail: "The content type names no kind of contract that this node reads.",
			Fix: "Send a JSON Schema as " + api.TypeSchema + ", or an Avro schema as " + api.TypeAvroSchema + ".",
		}
	}
	subject := c.Path("subject")
	if !headgate.ValidType(subject) {
		return headgate.NewError(headgate.CodeInvalidArgument, "The subject must be 1 to 200 letters, digits and the characters . _ - /.")
	}
	schema, err := c.Bytes()
	if err != nil {
		return err
	}
	done, err := o.Registry.Register(c.Context(), subject, kind, schema, c.Principal.Name)
	if err != nil {
		return err
	}
	out := api.Contract{
		Subject: done.Subject, Version: done.Version, Type: string(kind), Digest: done.Digest, Engine: done.Engine, Why: done.Why, Draft: done.Draft,
	}
	for _, w := range done.Warnings {
		out.Warnings = append(out.Warnings, api.Warning{Code: w.Code, At: w.At, Detail: w.Detail})
	}
	if done.Created {
		return c.JSON(http.StatusCreated, out)
	}
	return c.JSON(http.StatusOK, out)
}

// version reads the parameter of that name; 0 when absent.
func version(c *gateway.Call) (int, error) {
	return c.QueryInt("version", 0, 1<<31-1)
}

func (o *operator) getContract(c *gateway.Call) error {
	v, err := version(c)
	if err != nil {
		return err
	}
	subject := c.Path("subject")
	if !maySee(c.Principal, subject) {
		return notFound("contract")
	}
	s, err := o.Registry.Get(c.Context(), subject, v)
	if err != nil {
		return err
	}
	out := o.contractOf(&s, true)
	if c.Principal.Can(headgate.RoleViewer) {
		out.Guesses = o.Guesses.Of(subject)
	}
	return c.JSON(http.StatusOK, out)
}

func (o *operator) contractVersions(c *gateway.Call) error {
	subject := c.Path("subject")
	if !maySee(c.Principal, subject) {
		return notFound("contract")
	}
	all, err := o.Registry.Versions(c.Context(), subject)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return notFound("contract")
	}
	// Padded, so that the order of the text is that of the numbers.
	cut, next, err := page(c, all, func(s *store.Contract) string { return padded(s.Version) })
	if err != nil {
		return err
	}
	out := api.Contracts{Contracts: make([]api.Contract, len(cut)), Next: next}
	for i := range cut {
		out.Contracts[i] = o.contractOf(&cut[i], false)
	}
	return c.JSON(http.StatusOK, out)
}

func padded(n int) string {
	s := strconv.Itoa(n)
	return "0000000000"[:max(0, 10-len(s))] + s
}

func (o *operator) deleteContract(c *gateway.Call) error {
	v, err := version(c)
	if err != nil {
		return err
	}
	n, err := o.Registry.Delete(c.Context(), c.Path("subject"), v)
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("contract")
	}
	return c.JSON(http.StatusOK, api.Deleted{Deleted: n})
}

func (o *operator) checkContract(c *gateway.Call) error {
	subject := c.Path("subject")
	if !maySee(c.Principal, subject) {
		return headgate.NewError(headgate.CodeTypeNotAllowed, "the principal may neither emit nor listen to %s", clipped(subject))
	}
	payload, err := c.Bytes()
	if err != nil {
		return err
	}
	t := o.Topology.Lookup(subject)
	if len(payload) > t.PayloadMax {
		return headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; type %s allows %d", len(payload), clipped(subject), t.PayloadMax)
	}
	live := o.Registry.Lookup(subject)
	if live == nil {
		if err := o.Registry.Broken(subject); err != nil {
			return err
		}
		return headgate.NewError(headgate.CodeContractUnknown, "subject %s has no contract", clipped(subject))
	}
	media, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	if err != nil || !headgate.IsAvro(media) {
		media = headgate.MediaTypeJSON
	}
	j, err := live.Judge(media, payload, func(f contract.Frame) (*contract.Contract, error) {
		return o.Registry.Named(c.Context(), subject, f)
	})
	if err != nil {
		return err
	}
	out := api.Checked{Valid: true, Contract: j.Contract.Ref()}
	if v := j.Verdict; v != nil && !v.Valid {
		if j.Mended == nil || len(j.Mended) > t.PayloadMax {
			return violation(v)
		}
		out.WouldBeMended, out.Violations, out.Proposals = true, v.Violations, v.Proposals
	}
	return c.JSON(http.StatusOK, out)
}

// clipped bounds what is echoed of a path.
func clipped(s string) string {
	if !headgate.ValidType(s) {
		return "of that name"
	}
	return s
}

// violation is the error with which the perimeter refuses such a payload.
func violation(v *headgate.Verdict) *headgate.Error {
	n := len(v.Violations) + v.Truncated
	faults := "faults"
	if n == 1 {
		faults = "fault"
	}
	return &headgate.Error{
		Code: headgate.CodeContractViolation, Verdict: v,
		Detail: fmt.Sprintf("the payload has %d %s against %s", n, faults, v.Contract),
	}
}
