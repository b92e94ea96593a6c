package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/lease"
)

func (g *Gateway) addLeases() {
	if g.cfg.Leases == nil {
		return
	}
	g.addHolding()
	g.addLeaseViews()
}

const (
	leaseTag     = "leases"
	resourceNote = "Slashes in the resource are written %2F."
)

// addHolding adds what holders and operators do.
func (g *Gateway) addHolding() {
	body := func(of any) []Body { return []Body{{Media: api.TypeJSON, Of: of}} }
	ok := func(doc string, of any) []Response { return []Response{{Status: http.StatusOK, Doc: doc, Of: of}} }
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/leases/{resource}/acquire", ID: "acquireLease", Tag: leaseTag, Wait: true,
		Summary:     "Acquire the lease on a resource, waiting for it",
		Description: "Needs the resource among the principal's lease patterns. The holder is the principal. Waiting calls are served in order. " + resourceNote,
		Requests:    []Body{{Media: api.TypeJSON, Of: api.AcquireRequest{}, Doc: "May be left out"}},
		Responses: append(ok("Granted", api.Lease{}),
			Response{Status: http.StatusConflict, Doc: "Held by others, whom held names; retry_after_ms says how long to wait at most, unless they renew", Media: api.TypeProblem, Of: api.Problem{}}),
		Handle: g.acquireLease,
	})
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/leases/{resource}/renew", ID: "renewLease", Tag: leaseTag,
		Summary:     "Make a lease last longer",
		Description: "410 when the lease was superseded, 409 while it is being revoked: stop. " + resourceNote,
		Requests:    body(api.LeaseRequest{}), Responses: ok("Renewed: the token replaces the one that was sent", api.Lease{}), Handle: g.renewLease,
	})
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/leases/{resource}/release", ID: "releaseLease", Tag: leaseTag,
		Summary:     "Give a lease back",
		Description: "What the holder still has under way is refused from now on. 410 when the lease had ended already. " + resourceNote,
		Requests:    body(api.LeaseRequest{}), Responses: ok("Released", api.Released{}), Handle: g.releaseLease,
	})
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/leases/{resource}/revoke", ID: "revokeLease", Tag: leaseTag, Role: headgate.RoleOperator, Wait: true,
		Summary: "Take a lease from its holder",
		Description: "The gate closes at once: no write and no renewal of the holder passes, but the settlement of a delivery under the lease, which releases it. The lease ends when the holder releases it, at the latest at the deadline. " +
			"A transaction under the lease that is open in the node's own database is waited for; terminate ends its session. 503 when the deadline passes beside one: the gate is closed, and the detail says whose it is. " +
			"Targets that the lease was sealed at are told, too; untold names those that could not be. " + resourceNote,
		Requests:  []Body{{Media: api.TypeJSON, Of: api.RevokeRequest{}, Doc: "May be left out"}},
		Responses: ok("Revoked", api.Revoked{}), Handle: g.revokeLease,
	})
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/fence/verify", ID: "verifyFence", Tag: leaseTag,
		Summary: "Ask whether a lease token is good for a target now",
		Description: "A pass is worth as much as the time that went by since: only a check in the transaction of a write protects the write. " +
			"Problems: stale_fence (412), lease_expired (412), lease_closing (409), fence_conflict (409), fence_foreign and fence_invalid (403).",
		Requests: body(api.VerifyRequest{}), Responses: ok("Genuine, meant for the target, and current", api.Verified{}), Handle: g.verifyFence,
	})
}

// addLeaseViews adds what only looks.
func (g *Gateway) addLeaseViews() {
	ok := func(doc string, of any) []Response { return []Response{{Status: http.StatusOK, Doc: doc, Of: of}} }
	const own = "Without the role viewer: resources that the caller may lease."
	g.Handle(Route{
		Method: http.MethodGet, Path: "/v1/leases", ID: "listLeases", Tag: leaseTag, Summary: "Leases by resource", Description: own,
		Params: []Param{
			{In: "query", Name: "prefix", Doc: "Only resources that start so"},
			{In: "query", Name: "held", Type: "boolean", Doc: "true: only those that somebody holds"},
			{In: "query", Name: "limit", Type: "integer", Doc: "Entries of a page; default 100, at most 1000"},
			{In: "query", Name: "cursor", Doc: "The member next of the page before"},
		},
		Responses: ok("Leases, without their tokens", api.Leases{}), Handle: g.listLeases,
	})
	g.Handle(Route{
		Method: http.MethodGet, Path: "/v1/leases/{resource}", ID: "getLease", Tag: leaseTag, Summary: "One lease", Description: own + " " + resourceNote,
		Responses: ok("The lease, without its token", api.LeaseState{}), Handle: g.getLease,
	})
	g.Handle(Route{
		Method: http.MethodGet, Path: "/v1/leases/{resource}/watch", ID: "watchLease", Tag: leaseTag, Wait: true,
		Summary:     "Watch a lease (server-sent events)",
		Description: "A message of the kind lease at the start and after every change of epoch, holder or gate; renewals are no changes. " + own + " " + resourceNote,
		Responses:   []Response{{Status: http.StatusOK, Doc: "Messages without end", Media: api.TypeSSE, Of: api.LeaseState{}}}, Handle: g.watchLease,
	})
	g.Handle(Route{
		Method: http.MethodGet, Path: "/v1/fence/keys", ID: "fenceKeys", Tag: leaseTag, Public: true,
		Summary:   "Public keys by which lease tokens can be verified",
		Responses: ok("Keys, oldest first", api.FenceKeys{}), Handle: g.fenceKeys,
	})
}

// millis reads a member in milliseconds; the service judges the range.
func millis(ms int64) time.Duration {
	const most = int64(365 * 24 * time.Hour / time.Millisecond)
	return time.Duration(max(-1, min(ms, most))) * time.Millisecond
}

func (g *Gateway) acquireLease(c *Call) error {
	var in api.AcquireRequest
	if c.HasBody() {
		if err := c.Decode(&in); err != nil {
			return err
		}
	}
	ctx, done := g.waitContext(c)
	defer done()
	grants, err := g.cfg.Leases.Acquire(ctx, c.Principal, lease.Request{
		Resources: append([]string{c.Path("resource")}, in.Also...), Worker: in.Worker, TTL: millis(in.TTLMS), Wait: min(millis(in.WaitMS), lease.MaxWait),
		MaxHold: millis(in.MaxHoldMS), RequestID: in.RequestID, Audience: in.Audience, Seal: in.Seal,
	})
	if err != nil {
		return c.cutShort(ctx, err)
	}
	var out api.Lease
	for i := range grants {
		gr := &grants[i]
		l := api.Lease{
			Resource: gr.Resource, Epoch: gr.Epoch, EpochText: strconv.FormatInt(gr.Epoch, 10), Token: gr.Token,
			TTLMS: gr.TTL.Milliseconds(), ExpiresInMS: gr.ExpiresIn.Milliseconds(), Again: gr.Again,
		}
		if gr.Resource == c.Path("resource") {
			l.Also = out.Also
			out = l
		} else {
			out.Also = append(out.Also, l)
		}
	}
	return c.JSON(http.StatusOK, out)
}

// cutShort tells a caller that is still there why its wait, which was let go
// on by ctx, ended without what it waited for.
func (c *Call) cutShort(ctx context.Context, err error) error {
	if headgate.CodeOf(err) != headgate.CodeCanceled || ctx.Err() == nil || c.Context().Err() != nil {
		return err
	}
	if c.g.Draining() {
		return headgate.NewError(headgate.CodeDraining, "The node is shutting down.")
	}
	return &headgate.Error{
		Code: headgate.CodeForbidden, Detail: "The rights of the principal were changed while the call waited.",
		Fix: "Call again; the answer is by the rights of then.",
	}
}

func (g *Gateway) renewLease(c *Call) error {
	var in api.LeaseRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	n, err := g.cfg.Leases.Renew(c.Context(), c.Principal, c.Path("resource"), in.Token, millis(in.TTLMS))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, api.Lease{
		Resource: n.Resource, Epoch: n.Epoch, EpochText: strconv.FormatInt(n.Epoch, 10), Token: n.Token, ExpiresInMS: n.ExpiresIn.Milliseconds(), Late: n.Late,
	})
}

func (g *Gateway) releaseLease(c *Call) error {
	var in api.LeaseRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.TTLMS != 0 {
		return headgate.NewError(headgate.CodeInvalidArgument, "The member ttl_ms goes with renew only.")
	}
	if err := g.cfg.Leases.Release(c.Context(), c.Principal, c.Path("resource"), in.Token); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, api.Released{Released: true})
}

func (g *Gateway) revokeLease(c *Call) error {
	var in api.RevokeRequest
	if c.HasBody() {
		if err := c.Decode(&in); err != nil {
			return err
		}
	}
	if in.Mode != "" && in.Mode != "drain" && in.Mode != "terminate" {
		return headgate.NewError(headgate.CodeInvalidArgument, "mode must be drain or terminate.")
	}
	ctx, done := g.waitContext(c)
	defer done()
	out, err := g.cfg.Leases.Revoke(ctx, c.Path("resource"), lease.Revocation{Terminate: in.Mode == "terminate", Deadline: millis(in.DeadlineMS)})
	if err != nil {
		return err
	}
	answer := api.Revoked{
		Epoch: out.Epoch, EpochText: strconv.FormatInt(out.Epoch, 10), DrainedMS: out.Drained.Milliseconds(), Killed: out.Killed, Untold: out.Untold,
	}
	for i := range out.Sessions {
		b := &out.Sessions[i]
		answer.Sessions = append(answer.Sessions, api.EndedSession{PID: b.PID, User: b.User, Application: b.Application, Address: b.Address, Target: b.Target, OpenMS: b.Open.Milliseconds()})
	}
	return c.JSON(http.StatusOK, answer)
}

func (g *Gateway) verifyFence(c *Call) error {
	var in api.VerifyRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	f, left, err := g.cfg.Leases.Verify(c.Context(), in.Token, in.Target)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, api.Verified{
		Resource: f.Resource, Epoch: f.Epoch, EpochText: strconv.FormatInt(f.Epoch, 10), Holder: f.Holder, ExpiresInMS: left.Milliseconds(),
	})
}

func maySeeLease(p *headgate.Principal, resource string) bool {
	return p.Can(headgate.RoleViewer) || p.MayLease(resource)
}

func leaseStateOf(st *lease.State) api.LeaseState {
	return api.LeaseState{
		Resource: st.Resource, Epoch: st.Epoch, EpochText: strconv.FormatInt(st.Epoch, 10), Held: st.Held(), Holder: st.Holder, Worker: st.Worker,
		Closing: st.Closing, TTLMS: st.TTL.Milliseconds(), ExpiresInMS: max(0, st.ExpiresIn.Milliseconds()), HeldForMS: st.HeldFor.Milliseconds(), Audience: st.Audience,
	}
}

func (g *Gateway) listLeases(c *Call) error {
	limit, err := c.QueryInt("limit", 100, 1000)
	if err != nil {
		return err
	}
	held := c.Query("held")
	if held != "" && held != "true" && held != "false" {
		return headgate.NewError(headgate.CodeInvalidArgument, "The parameter held must be true or false.")
	}
	out := api.Leases{Leases: []api.LeaseState{}}
	f := lease.Filter{Prefix: c.Query("prefix"), After: c.Query("cursor"), Held: held == "true", Limit: 1000}
	for len(out.Leases) <= limit { // one more than asked for tells that there is a next page
		rows, err := g.cfg.Leases.List(c.Context(), f)
		if err != nil {
			return err
		}
		for i := range rows {
			if maySeeLease(c.Principal, rows[i].Resource) && len(out.Leases) <= limit {
				out.Leases = append(out.Leases, leaseStateOf(&rows[i]))
			}
		}
		if len(rows) < f.Limit {
			break
		}
		f.After = rows[len(rows)-1].Resource
	}
	if len(out.Leases) > limit {
		// A cursor names only what the caller may see.
		out.Leases = out.Leases[:limit]
		out.Next = out.Leases[limit-1].Resource
	}
	return c.JSON(http.StatusOK, out)
}

func (g *Gateway) mayWatch(c *Call) error {
	if maySeeLease(c.Principal, c.Path("resource")) {
		return nil
	}
	return headgate.NewError(headgate.CodeForbidden, "The principal may neither lease this resource nor see all.")
}

func (g *Gateway) getLease(c *Call) error {
	if err := g.mayWatch(c); err != nil {
		return err
	}
	st, err := g.cfg.Leases.Get(c.Context(), c.Path("resource"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, leaseStateOf(&st))
}

// watchLease streams the states of one lease. Its messages are written by one
// goroutine; a client that reads slowly misses states in between.
func (g *Gateway) watchLease(c *Call) error {
	if err := g.mayWatch(c); err != nil {
		return err
	}
	if !headgate.ValidResource(c.Path("resource")) {
		return headgate.NewError(headgate.CodeInvalidArgument, "The path names no resource.")
	}
	if g.tails.Add(1) > int64(g.lim.Tails) {
		g.tails.Add(-1)
		return overloaded("The node serves as many live streams as it may.", false)
	}
	defer g.tails.Add(-1)
	waiting, done := g.waitContext(c)
	defer done()
	ctx, stop := context.WithCancel(waiting)
	states, ended := make(chan lease.State), make(chan error, 1)
	defer func() {
		stop()
		<-ended
	}()
	go func() {
		ended <- g.cfg.Leases.Watch(ctx, c.Path("resource"), func(st lease.State) error {
			select {
			case states <- st:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(ended)
	}()
	h := c.W.Header()
	h.Set("Content-Type", api.TypeSSE)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	c.W.WriteHeader(http.StatusOK)
	beat := time.NewTicker(g.lim.Heartbeat)
	defer beat.Stop()
	t := &tailer{c: c}
	for {
		select {
		case <-waiting.Done():
			return nil
		case err := <-ended:
			g.cfg.Log.Warn("live stream broke off", "request", c.RequestID, "error", err)
			return nil
		case <-beat.C:
			t.buf = append(t.buf[:0], ": heartbeat\n\n"...)
		case st := <-states:
			b, err := json.Marshal(leaseStateOf(&st))
			if err != nil {
				return nil // no state is of this kind
			}
			t.buf = append(append(append(t.buf[:0], "retry: 1000\nevent: lease\ndata: "...), b...), "\n\n"...)
		}
		if !t.flush() {
			return nil
		}
	}
}

func (g *Gateway) fenceKeys(c *Call) error {
	issuer, keys := g.cfg.Leases.Keys()
	out := api.FenceKeys{Issuer: issuer}
	for _, k := range keys {
		out.Keys = append(out.Keys, api.FenceKey{KeyType: "OKP", Curve: "Ed25519", ID: k.ID, X: base64.RawURLEncoding.EncodeToString(k.Key)})
	}
	return c.JSON(http.StatusOK, out)
}

// maxFences bounds the lease tokens of one request.
const maxFences = 16

// fenceTokens reads the lease tokens of a request.
func fenceTokens(h http.Header) ([]string, error) {
	var out []string
	for _, v := range h.Values(api.HeaderFence) {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	if len(out) == 0 && len(h.Values(api.HeaderFence)) > 0 {
		// Whoever lost its token must not write as if no lease were needed.
		return nil, headgate.NewError(headgate.CodeFenceInvalid, "%s is there, but has no token.", api.HeaderFence)
	}
	if len(out) > maxFences {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "%s has %d tokens; at most %d are allowed.", api.HeaderFence, len(out), maxFences)
	}
	return out, nil
}
