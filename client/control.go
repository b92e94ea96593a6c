package client

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/api"
)

// Page names one page of a list. The zero value is the first page of the
// server's default size.
type Page struct {
	Limit  int
	Cursor string // the member Next of the page before
}

func (p Page) query(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if p.Limit > 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Cursor != "" {
		q.Set("cursor", p.Cursor)
	}
	return q
}

func versioned(version int) url.Values {
	if version == 0 {
		return nil
	}
	return url.Values{"version": {strconv.Itoa(version)}}
}

func contractPath(subject string) string { return "/v1/contracts/" + seg(subject) }

// Contracts lists the latest version of every contract.
func (c *Client) Contracts(ctx context.Context, p Page) (out api.Contracts, err error) {
	err = c.get(ctx, "/v1/contracts", p.query(nil), &out)
	return out, err
}

// PutContract registers a JSON Schema. Created tells whether it became a new
// version.
func (c *Client) PutContract(ctx context.Context, subject string, schema []byte) (out api.Contract, created bool, err error) {
	return c.putContract(ctx, subject, api.TypeSchema, schema)
}

// PutAvroContract is PutContract for an Avro schema.
func (c *Client) PutAvroContract(ctx context.Context, subject string, schema []byte) (out api.Contract, created bool, err error) {
	return c.putContract(ctx, subject, api.TypeAvroSchema, schema)
}

func (c *Client) putContract(ctx context.Context, subject, media string, schema []byte) (out api.Contract, created bool, err error) {
	status, err := c.call(ctx, request{method: http.MethodPut, path: contractPath(subject), media: media, body: bytes.NewReader(schema)}, nil, &out)
	return out, status == http.StatusCreated, err
}

// Contract returns one version with its schema; version 0 means the latest.
func (c *Client) Contract(ctx context.Context, subject string, version int) (out api.Contract, err error) {
	err = c.get(ctx, contractPath(subject), versioned(version), &out)
	return out, err
}

// ContractVersions lists all versions, deleted ones included.
func (c *Client) ContractVersions(ctx context.Context, subject string, p Page) (out api.Contracts, err error) {
	err = c.get(ctx, contractPath(subject)+"/versions", p.query(nil), &out)
	return out, err
}

// DeleteContract deletes a version softly; version 0 means all.
func (c *Client) DeleteContract(ctx context.Context, subject string, version int) (int, error) {
	var out api.Deleted
	_, err := c.call(ctx, request{method: http.MethodDelete, path: contractPath(subject), query: versioned(version)}, nil, &out)
	return out.Deleted, err
}

// CheckContract checks a payload of a media type (JSON if it is empty) without
// publishing it. A violation is the error that publishing would give.
func (c *Client) CheckContract(ctx context.Context, subject, media string, payload []byte) (out api.Checked, err error) {
	if media == "" {
		media = api.TypeJSON
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: contractPath(subject) + "/check", media: media, body: bytes.NewReader(payload)}, nil, &out)
	return out, err
}

// ExportContract returns a contract in another form: "strict". Version 0 means
// the latest.
func (c *Client) ExportContract(ctx context.Context, subject, format string, version int) (out api.ContractExport, err error) {
	q := versioned(version)
	if q == nil {
		q = url.Values{}
	}
	q.Set("format", format)
	err = c.get(ctx, contractPath(subject)+"/export", q, &out)
	return out, err
}

// Recheck checks the payload of a quarantine record again, by the contract that
// refused it, or by the one in use.
func (c *Client) Recheck(ctx context.Context, qid string, latest bool) (out api.Rechecked, err error) {
	q := url.Values{}
	if latest {
		q.Set("against", "latest")
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/quarantine/" + seg(qid) + "/check", query: q}, nil, &out)
	return out, err
}

func subscriptionPath(name string) string { return "/v1/subscriptions/" + seg(name) }

// Subscriptions lists subscriptions.
func (c *Client) Subscriptions(ctx context.Context, p Page) (out api.Subscriptions, err error) {
	err = c.get(ctx, "/v1/subscriptions", p.query(nil), &out)
	return out, err
}

// PutSubscription adds or changes a subscription.
func (c *Client) PutSubscription(ctx context.Context, name string, spec api.SubscriptionSpec) (out api.Subscription, created bool, err error) {
	status, err := c.call(ctx, request{method: http.MethodPut, path: subscriptionPath(name)}, spec, &out)
	return out, status == http.StatusCreated, err
}

// Subscription returns one subscription.
func (c *Client) Subscription(ctx context.Context, name string) (out api.Subscription, err error) {
	err = c.get(ctx, subscriptionPath(name), nil, &out)
	return out, err
}

// DeleteSubscription removes a subscription with its progress.
func (c *Client) DeleteSubscription(ctx context.Context, name string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: subscriptionPath(name)}, nil, &api.Deleted{})
	return err
}

// PauseSubscription stops deliveries until [Client.ResumeSubscription].
func (c *Client) PauseSubscription(ctx context.Context, name string) (out api.Subscription, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: subscriptionPath(name) + "/pause"}, nil, &out)
	return out, err
}

// ResumeSubscription starts deliveries again.
func (c *Client) ResumeSubscription(ctx context.Context, name string) (out api.Subscription, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: subscriptionPath(name) + "/resume"}, nil, &out)
	return out, err
}

// QuarantineFilter selects records; empty fields select all.
type QuarantineFilter struct {
	Kind, Reason, Type, Subscription, Principal, Root, ID, Fingerprint string
}

func (f QuarantineFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"kind": f.Kind, "reason": f.Reason, "type": f.Type, "subscription": f.Subscription,
		"principal": f.Principal, "root": f.Root, "id": f.ID, "fingerprint": f.Fingerprint,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Quarantine lists quarantined events, newest first.
func (c *Client) Quarantine(ctx context.Context, f QuarantineFilter, p Page) (out api.Quarantine, err error) {
	err = c.get(ctx, "/v1/quarantine", p.query(f.query()), &out)
	return out, err
}

// QuarantineGroups sums quarantined events up by fault.
func (c *Client) QuarantineGroups(ctx context.Context, f QuarantineFilter) (out api.QuarantineGroups, err error) {
	err = c.get(ctx, "/v1/quarantine/groups", f.query(), &out)
	return out, err
}

// Quarantined returns one record whole.
func (c *Client) Quarantined(ctx context.Context, qid string) (out api.QuarantinedWhole, err error) {
	err = c.get(ctx, "/v1/quarantine/"+seg(qid), nil, &out)
	return out, err
}

// Whoami describes the token's principal and the node.
func (c *Client) Whoami(ctx context.Context) (out api.Whoami, err error) {
	err = c.get(ctx, "/v1/whoami", nil, &out)
	return out, err
}

func principalPath(name string) string { return "/v1/principals/" + seg(name) }

// Principals lists principals.
func (c *Client) Principals(ctx context.Context, p Page) (out api.Principals, err error) {
	err = c.get(ctx, "/v1/principals", p.query(nil), &out)
	return out, err
}

// AddPrincipal adds a principal and returns its first token.
func (c *Client) AddPrincipal(ctx context.Context, p api.Principal) (out api.NewPrincipal, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/principals"}, p, &out)
	return out, err
}

// Principal returns one principal.
func (c *Client) Principal(ctx context.Context, name string) (out api.Principal, err error) {
	err = c.get(ctx, principalPath(name), nil, &out)
	return out, err
}

// PutPrincipal changes what a principal may do.
func (c *Client) PutPrincipal(ctx context.Context, p api.Principal) (out api.Principal, err error) {
	_, err = c.call(ctx, request{method: http.MethodPut, path: principalPath(p.Name)}, p, &out)
	return out, err
}

// RotatePrincipal issues a new token; earlier ones end after grace.
func (c *Client) RotatePrincipal(ctx context.Context, name string, grace time.Duration) (out api.NewPrincipal, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: principalPath(name) + "/rotate"}, api.RotateRequest{Grace: api.Duration(grace)}, &out)
	return out, err
}

// DisablePrincipal refuses every further request of a principal.
func (c *Client) DisablePrincipal(ctx context.Context, name string) (out api.Principal, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: principalPath(name) + "/disable"}, nil, &out)
	return out, err
}

// Doctor returns the node's diagnosis.
func (c *Client) Doctor(ctx context.Context) (out api.Doctor, err error) {
	err = c.get(ctx, "/v1/doctor", nil, &out)
	return out, err
}

// Ready returns nil when the node takes work, and why it does not otherwise.
func (c *Client) Ready(ctx context.Context) error {
	var out struct{}
	return c.get(ctx, "/readyz", nil, &out)
}
