package confluent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/registry"
)

// Prefix is the path below which the face answers: the base URL of clients.
const Prefix = "/registry"

// Config configures the face. Registry and Principals are required.
type Config struct {
	Registry   *registry.Registry
	Principals *principal.Directory
	// Code of the body that says a schema is incompatible; the status is 409
	// either way. 0 means 409, which most clients know; newer ones know 40901.
	IncompatibleCode int
	// Version is answered under /v1/metadata/version.
	Version string
	Log     *slog.Logger
}

// Mount adds the face to a gateway.
func Mount(g *gateway.Gateway, cfg Config) error {
	if cfg.Registry == nil || cfg.Principals == nil {
		return headgate.NewError(headgate.CodeInvalidConfig, "confluent: Registry and Principals are required")
	}
	if cfg.IncompatibleCode == 0 {
		cfg.IncompatibleCode = registry.FaultIncompatible
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &face{cfg: cfg, slots: make(chan struct{}, maxAtWork), draining: g.Draining}
	f.routes()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{Prefix + "/{path...}", Prefix} {
			g.Handle(gateway.Route{
				Method: method, Path: path, ID: "registry" + method, Tag: "registry", Public: true,
				Summary: "The face for clients of a Confluent schema registry",
				Handle: func(c *gateway.Call) error {
					f.serve(c)
					return nil
				},
			})
		}
	}
	return nil
}

// Bounds of the face.
const (
	maxAtWork = 64
	maxBody   = 1 << 20
)

// face serves the calls.
type face struct {
	cfg      Config
	mux      *http.ServeMux
	slots    chan struct{}
	draining func() bool
}

// right is what a call demands of its caller.
type right int

const (
	reads right = iota
	registers
	operates
)

// call is one call.
type call struct {
	*http.Request
	face      *face
	outer     *gateway.Call
	principal *headgate.Principal
	context   string // from /contexts/NAME/ before the path; "" when absent
	query     url.Values
}

// answer is what a call answers with.
type answer struct {
	status int // 0: 200
	body   any
	raw    []byte // instead of body
}

type handler func(*call) (answer, error)

// route is what the mux finds: the handler with its right.
type route struct {
	right  right
	handle handler
}

// ServeHTTP is not used: the mux only finds routes.
func (route) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (f *face) on(pattern string, r right, h handler) { f.mux.Handle(pattern, route{r, h}) }

// serve answers one call.
func (f *face) serve(c *gateway.Call) {
	a, err := f.run(c)
	if err != nil {
		a = f.refusal(c.R, err)
		if a.status == http.StatusUnauthorized {
			c.W.Header().Set("WWW-Authenticate", `Basic realm="headgate"`)
		}
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	body := a.raw
	if body == nil && a.status != http.StatusNoContent {
		if body, err = json.Marshal(a.body); err != nil {
			body = []byte(`{"error_code":50001,"message":"The answer could not be written."}`)
			a.status = http.StatusInternalServerError
		}
	}
	c.Raw(a.status, mediaFor(c.R.Header.Values("Accept")), body)
}

// run finds the route, the caller and the answer.
func (f *face) run(outer *gateway.Call) (answer, error) {
	r := outer.R
	if f.draining() {
		return answer{}, &registry.Fault{Code: http.StatusServiceUnavailable, Detail: "The node is shutting down."}
	}
	p, err := f.authenticate(r)
	if err != nil {
		return answer{}, err
	}
	rt, inner, err := f.find(r)
	if err != nil {
		return answer{}, err
	}
	if err := allowed(p, rt.right); err != nil {
		return answer{}, err
	}
	inner.principal, inner.outer = p, outer
	if err := checkMedia(r); err != nil {
		return answer{}, err
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-r.Context().Done():
		return answer{}, r.Context().Err()
	}
	return rt.handle(inner)
}

// find strips the prefix and looks the rest up.
func (f *face) find(r *http.Request) (route, *call, error) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), Prefix)
	c := &call{face: f, query: r.URL.Query()}
	if rest, ok := strings.CutPrefix(path, "/contexts/"); ok {
		if space, inner, ok := strings.Cut(rest, "/"); ok {
			name, err := url.PathUnescape(space)
			if err != nil {
				return route{}, nil, notFound(r)
			}
			c.context, path = strings.Trim(name, ":"), "/"+inner
		}
	}
	if path = strings.TrimSuffix(path, "/"); path == "" {
		path = "/"
	}
	u := *r.URL
	u.RawPath = path
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return route{}, nil, notFound(r)
	}
	inner := r.Clone(r.Context())
	inner.URL = &u
	c.Request = inner
	h, pattern := f.mux.Handler(inner)
	rt, ok := h.(route)
	if !ok || pattern == "" {
		return route{}, nil, f.unknown(inner)
	}
	c.setPath(pattern)
	return rt, c, nil
}

// setPath matches the path with its pattern, segment by segment.
func (c *call) setPath(pattern string) {
	_, pattern, _ = strings.Cut(pattern, " ")
	names, values := strings.Split(pattern, "/"), strings.Split(c.URL.EscapedPath(), "/")
	for i, n := range names {
		if i < len(values) && strings.HasPrefix(n, "{") {
			v, err := url.PathUnescape(values[i])
			if err != nil {
				v = values[i]
			}
			c.SetPathValue(strings.Trim(n, "{}"), v)
		}
	}
}

func notFound(*http.Request) error {
	return &registry.Fault{Code: http.StatusNotFound, Detail: "HTTP 404 Not Found"}
}

// unknown tells an unknown path from an unknown method of a known one.
func (f *face) unknown(r *http.Request) error {
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if h, _ := f.mux.Handler(probe); h != nil {
			if _, ok := h.(route); ok {
				return &registry.Fault{Code: http.StatusMethodNotAllowed, Detail: "HTTP 405 Method Not Allowed"}
			}
		}
	}
	return notFound(r)
}

// authenticate takes a bearer token, or a token as the password of Basic.
func (f *face) authenticate(r *http.Request) (*headgate.Principal, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 1 && len(values[0]) <= 8192 {
		token := ""
		if _, password, ok := r.BasicAuth(); ok {
			token = password
		} else if scheme, rest, ok := strings.Cut(values[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
			token = strings.TrimSpace(rest)
		}
		if token != "" {
			p, err := f.cfg.Principals.Authenticate(r.Context(), token)
			if err == nil || headgate.CodeOf(err) != headgate.CodeUnauthenticated {
				return p, err
			}
		}
	}
	return nil, &registry.Fault{Code: 40101, Detail: "Unauthorized: send a token as bearer, or as the password of Basic."}
}

// allowed checks a right: whoever may emit, listen or view reads.
func allowed(p *headgate.Principal, r right) error {
	ok, want := false, ""
	switch r {
	case reads:
		ok, want = p.Can(headgate.RoleViewer) || len(p.Roles) > 0 || len(p.Emit) > 0 || len(p.Listen) > 0, "the role viewer, or a right to emit or listen"
	case registers:
		ok, want = p.Can(headgate.RoleDeveloper), "the role developer"
	case operates:
		ok, want = p.Can(headgate.RoleOperator), "the role operator"
	}
	if ok {
		return nil
	}
	return &registry.Fault{Code: 40301, Detail: "User is denied the operation: it needs " + want + "."}
}

// The media types of the protocol.
const (
	mediaV1   = "application/vnd.schemaregistry.v1+json"
	mediaAny  = "application/vnd.schemaregistry+json"
	mediaJSON = "application/json"
)

// mediaFor chooses the type of an answer: the first of ours that is accepted.
func mediaFor(accept []string) string {
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		media, _, _ := strings.Cut(part, ";")
		switch media = strings.ToLower(strings.TrimSpace(media)); media {
		case mediaV1, mediaAny, mediaJSON:
			return media
		}
	}
	return mediaV1
}

func checkMedia(r *http.Request) error {
	if r.ContentLength == 0 || r.Header.Get("Content-Type") == "" {
		return nil
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case mediaV1, mediaAny, mediaJSON, "application/octet-stream":
		return nil
	}
	return &registry.Fault{Code: http.StatusUnsupportedMediaType, Detail: "HTTP 415 Unsupported Media Type"}
}

// read reads the body whole.
func (c *call) read() ([]byte, error) {
	b, err := c.outer.Limited(maxBody)
	switch headgate.CodeOf(err) {
	case "":
		return b, err
	case headgate.CodeTooLarge:
		return nil, &registry.Fault{Code: http.StatusRequestEntityTooLarge, Detail: headgate.AsError(err).Detail}
	case headgate.CodeUnsupportedMediaType:
		return nil, &registry.Fault{Code: http.StatusUnsupportedMediaType, Detail: headgate.AsError(err).Detail}
	case headgate.CodeTimeout:
		return nil, &registry.Fault{Code: http.StatusRequestTimeout, Detail: headgate.AsError(err).Detail}
	}
	return nil, &registry.Fault{Code: http.StatusBadRequest, Detail: "The body could not be read whole."}
}

// refusal makes the two-field body of an error.
func (f *face) refusal(r *http.Request, err error) answer {
	code, detail := registry.FaultStore, "Error in the backend data store"
	var fault *registry.Fault
	switch {
	case errors.As(err, &fault):
		code, detail = fault.Code, fault.Detail
		if code == registry.FaultIncompatible {
			code = f.cfg.IncompatibleCode
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), headgate.CodeOf(err) == headgate.CodeTimeout:
		code, detail = registry.FaultTimeout, "The operation timed out"
	case headgate.CodeOf(err) == headgate.CodeConflict:
		code, detail = http.StatusConflict*100+2, "The subject changed at the same time; try again."
	default:
		f.cfg.Log.Error("registry call failed", "path", r.URL.Path, "error", err)
	}
	status := code
	for status > 999 {
		status /= 100
	}
	return answer{status: status, body: refused{code, detail}}
}

type refused struct {
	Code    int    `json:"error_code"`
	Message string `json:"message"`
}

// subject returns the subject of the path, in the context of the path.
func (c *call) subject() string { return c.qualify(c.PathValue("subject")) }

func (c *call) qualify(subject string) string {
	if c.context == "" || strings.HasPrefix(subject, ":") {
		return subject
	}
	return ":" + c.context + ":" + subject
}

func (c *call) flag(name string) bool { return strings.EqualFold(c.query.Get(name), "true") }

// count reads a number that must not be negative.
func (c *call) count(name string) int {
	n, err := strconv.Atoi(c.query.Get(name))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (c *call) seen() registry.Seen {
	switch {
	case c.flag("deletedOnly"):
		return registry.OnlyDeleted
	case c.flag("deleted"):
		return registry.WithDeleted
	}
	return registry.Live
}

// version reads the version of the path.
func (c *call) version() (int, error) {
	s := c.PathValue("version")
	if s == "latest" || s == "-1" {
		return registry.Latest, nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return 0, &registry.Fault{
			Code:   registry.FaultInvalidVersion,
			Detail: fmt.Sprintf("The specified version '%s' is not a valid version id. Allowed values are between [1, 2^31-1] and the string \"latest\"", clip(s)),
		}
	}
	return int(n), nil
}

// id reads the id of the path.
func (c *call) id() (int, error) {
	n, err := strconv.ParseInt(c.PathValue("id"), 10, 32)
	if err != nil || n < 0 {
		return 0, notFound(c.Request)
	}
	return int(n), nil
}

func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == '\uFFFD' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64]) + "…"
	}
	return s
}
