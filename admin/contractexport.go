package admin

import (
	"mime"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/quarantine"
)

func (o *operator) exportRoutes() []gateway.Route {
	const tag = "contracts"
	return []gateway.Route{
		{
			Method: http.MethodGet, Path: "/v1/contracts/{subject}/export", ID: "exportContract", Tag: tag, Handle: o.exportContract,
			Summary: "A contract in another form", Responses: ok("The export", api.ContractExport{}),
			Description: "format=strict: the part of JSON Schema that decoders for constrained output take, with what it narrows and loosens; of an Avro contract for its form in JSON.",
			Params: []gateway.Param{
				{In: "query", Name: "format", Doc: "strict"},
				{In: "query", Name: "version", Type: "integer", Doc: "Default: the latest"},
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/contracts/lint", ID: "lintContract", Tag: tag, Handle: o.lintContract,
			Summary: "What there is to say about a schema, without registering it", Responses: ok("Warnings and advice", api.Linted{}),
			Requests: []gateway.Body{{Media: api.TypeSchema, Doc: "JSON Schema, draft 4 to 2020-12"}, {Media: api.TypeJSON, Doc: "The same"}, {Media: api.TypeAvroSchema, Doc: "Avro schema"}},
		},
		{
			Method: http.MethodPost, Path: "/v1/quarantine/{qid}/check", ID: "recheckQuarantined", Tag: "quarantine", Handle: o.recheck,
			Summary:     "Check a recorded payload again, by the contract that refused it",
			Description: "Says whether the verdict is the same byte for byte. against=latest asks the contract in use instead.",
			Responses:   ok("Both verdicts", api.Rechecked{}),
			Params:      []gateway.Param{{In: "query", Name: "against", Doc: "recorded (default) or latest"}},
		},
	}
}

func (o *operator) exportContract(c *gateway.Call) error {
	v, err := version(c)
	if err != nil {
		return err
	}
	if f := c.Query("format"); f != "strict" {
		return headgate.NewError(headgate.CodeInvalidArgument, "The parameter format must be strict.")
	}
	subject := c.Path("subject")
	if !maySee(c.Principal, subject) {
		return notFound("contract")
	}
	live, err := o.Registry.Compiled(c.Context(), subject, v)
	if err != nil {
		return err
	}
	x, err := live.Strict(nil)
	if err != nil {
		return err
	}
	out := api.ContractExport{
		Contract: live.Ref(), Format: "strict", Schema: x.Schema, NullMeansAbsent: x.NullMeansAbsent, Exact: x.Exact(), Exceeds: x.Exceeds,
	}
	for _, l := range x.Losses {
		out.Losses = append(out.Losses, api.Loss{At: l.At, Keyword: l.Keyword, Effect: string(l.Effect), Detail: l.Detail})
	}
	return c.JSON(http.StatusOK, out)
}

func (o *operator) lintContract(c *gateway.Call) error {
	schema, err := c.Bytes()
	if err != nil {
		return err
	}
	opts := &contract.CompileOpts{Policy: o.Registry.Policy()}
	if media, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type")); err == nil && media == api.TypeAvroSchema {
		opts.Type = contract.TypeAvro
	}
	list, err := contract.Lint(schema, opts)
	if err != nil {
		return err
	}
	out := api.Linted{Warnings: []api.Warning{}}
	for _, w := range list {
		out.Warnings = append(out.Warnings, api.Warning{Code: w.Code, At: w.At, Detail: w.Detail, Advice: w.IsAdvice()})
	}
	return c.JSON(http.StatusOK, out)
}

// recheck replays the verdict of a record: a pure function of the contract's
// digest and the bytes, which the record has both of.
func (o *operator) recheck(c *gateway.Call) error {
	against := c.Query("against")
	if against != "" && against != "recorded" && against != "latest" {
		return headgate.NewError(headgate.CodeInvalidArgument, "The parameter against must be recorded or latest.")
	}
	r, err := o.Quarantine.Show(c.Context(), c.Path("qid"))
	if err != nil || !o.mayRead(c, &r) {
		return notFound("record")
	}
	d, err := quarantine.DetailOf(&r)
	if err != nil {
		return err
	}
	switch {
	case d.Verdict == nil:
		return headgate.NewError(headgate.CodeConflict, "the record has no verdict of a contract: it was refused as %s", r.Reason)
	case d.Body.Clipped():
		return headgate.NewError(headgate.CodeConflict, "the record keeps %d of %d bytes", d.Body.Kept, d.Body.Size)
	}
	ref := d.Verdict.Contract
	number := ref.Version
	if against == "latest" {
		number = 0
	}
	live, err := o.Registry.Compiled(c.Context(), ref.Subject, number)
	if err != nil {
		return err
	}
	media, body := r.ContentType, r.Body
	if len(body) == 0 && !headgate.IsAvro(media) { // an event without data is checked as null
		media, body = headgate.MediaTypeJSON, []byte("null")
	}
	j, err := live.Judge(media, body, func(f contract.Frame) (*contract.Contract, error) {
		return o.Registry.Named(c.Context(), ref.Subject, f)
	})
	if err != nil {
		return err
	}
	now := headgate.Verdict{Valid: true, Contract: j.Contract.Ref()}
	if j.Verdict != nil {
		now = *j.Verdict
	}
	out := api.Rechecked{
		QID: r.QID, Recorded: ref, Contract: now.Contract, Valid: now.Valid, SameContract: ref.Digest == now.Contract.Digest,
		RecordedDigest: contract.VerdictDigest(d.Verdict), Digest: contract.VerdictDigest(&now), BodySHA256: d.Body.SHA256,
		Violations: now.Violations, Truncated: now.Truncated, Proposals: now.Proposals,
	}
	out.Same = out.RecordedDigest == out.Digest
	return c.JSON(http.StatusOK, out)
}
