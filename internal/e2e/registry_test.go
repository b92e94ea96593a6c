package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/servertest"
)

const registryConfig = `
version: 1
data: %s
listen: %s
principals:
  - { name: keeper, kind: human, roles: [developer, operator, viewer], token: env:TOKEN_KEEPER }
  - { name: shop, kind: system, emit: ["shop.order"], roots: 1000/s, token: env:TOKEN_SHOP }
`

const (
	orderV1 = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"}]}`
	orderV2 = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"},{"name":"n","type":"int","default":1}]}`
	orderV3 = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"},{"name":"m","type":"int"}]}`
	shopV1  = `{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"additionalProperties":false}`
	shopV2  = `{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"integer"}},"required":["id"],"additionalProperties":false}`
)

// shopV3 is shopV2 with one more optional property.
var shopV3 = strings.Replace(shopV2, `"n":`, `"m":{"type":"string"},"n":`, 1)

// registryNode runs a node and returns it with the token of each principal.
func registryNode(t *testing.T) (*servertest.Server, map[string]string) {
	t.Helper()
	tokens := map[string]string{"keeper": "a-token-for-tests-of-keeper-0123456789", "shop": "a-token-for-tests-of-shop-0123456789"}
	t.Setenv("TOKEN_KEEPER", tokens["keeper"])
	t.Setenv("TOKEN_SHOP", tokens["shop"])
	dir, addr := t.TempDir(), freeAddr(t)
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, registryConfig, filepath.Join(dir, "data"), addr), 0o600); err != nil {
		t.Fatal(err)
	}
	return servertest.Start(t, binary, addr, "serve", "--config", config), tokens
}

func registryClient(t *testing.T, url, token string) *sr.Client {
	t.Helper()
	cl, err := sr.NewClient(sr.URLs(url+"/registry"), sr.BasicAuth("any", token))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func wantCode(t *testing.T, what string, err error, code int) {
	t.Helper()
	var re *sr.ResponseError
	if !errors.As(err, &re) || re.ErrorCode != code || re.Message == "" {
		t.Errorf("%s: got %v, want code %d", what, err, code)
	}
}

func noErr(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// The Go client of franz-go does with the registry what it can do, and finds
// everything again after the node was killed.
func TestRegistryServesFranzGo(t *testing.T) {
	srv, tokens := registryNode(t)
	cl := registryClient(t, srv.URL(), tokens["keeper"])
	ctx := t.Context()
	avro := func(text string) sr.Schema { return sr.Schema{Schema: text, Type: sr.TypeAvro} }
	json := func(text string) sr.Schema { return sr.Schema{Schema: text, Type: sr.TypeJSON} }

	types, err := cl.SupportedTypes(ctx)
	noErr(t, "types", err)
	if !slices.Equal(types, []sr.SchemaType{sr.TypeAvro, sr.TypeJSON}) { // the client sorts them
		t.Errorf("types %v", types)
	}
	first, err := cl.CreateSchema(ctx, "orders-value", avro(orderV1))
	noErr(t, "create", err)
	if first.Version != 1 || first.ID < 1 || first.Schema.Schema != orderV1 {
		t.Errorf("first: %+v", first)
	}
	second, err := cl.CreateSchema(ctx, "orders-value", avro(orderV2))
	noErr(t, "create a second version", err)
	again, err := cl.CreateSchema(ctx, "orders-value", avro(orderV2))
	noErr(t, "create it again", err)
	if second.Version != 2 || again.ID != second.ID || again.Version != 2 {
		t.Errorf("second: %+v, again: %+v", second, again)
	}
	_, err = cl.CreateSchema(ctx, "orders-value", avro(orderV3))
	wantCode(t, "an incompatible version", err, 409)
	check, err := cl.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), "orders-value", -1, avro(orderV3))
	noErr(t, "check", err)
	if check.Is || len(check.Messages) == 0 {
		t.Errorf("check: %+v", check)
	}
	_, err = cl.SchemaByID(ctx, 999_999)
	wantCode(t, "an unknown id", err, 40403)
	_, err = cl.SchemaByVersion(ctx, "nobody-value", 1)
	wantCode(t, "an unknown subject", err, 40401)

	contract, err := cl.CreateSchema(ctx, "shop.order", json(shopV1))
	noErr(t, "create a contract", err)
	found, err := cl.LookupSchema(ctx, "shop.order", json(shopV1))
	noErr(t, "look up", err)
	if found.ID != contract.ID || found.Version != 1 || found.Type != sr.TypeJSON {
		t.Errorf("found %+v", found)
	}
	for _, r := range cl.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "shop.order") {
		noErr(t, "set level", r.Err)
	}
	_, err = cl.CreateSchema(ctx, "shop.order", json(`{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}`))
	wantCode(t, "an incompatible contract", err, 409)
	_, err = cl.CreateSchema(ctx, "shop.order", json(shopV2))
	noErr(t, "a compatible contract", err)

	// The same subject by our own API, under the same level.
	own := srv.Client(tokens["keeper"])
	_, _, err = own.PutContract(ctx, "shop.order", []byte(`{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}`))
	if headgate.CodeOf(err) != headgate.CodeContractIncompatible || !strings.Contains(err.Error(), "type_narrowed") {
		t.Errorf("an incompatible contract by PUT: %v", err)
	}
	put, created, err := own.PutContract(ctx, "shop.order", []byte(shopV3))
	noErr(t, "a contract by PUT", err)
	latest, err := cl.SchemaByVersion(ctx, "shop.order", -1)
	noErr(t, "the latest version", err)
	if !created || put.Version != 3 || latest.Version != 3 || latest.Schema.Schema != shopV3 {
		t.Errorf("put %+v, latest %+v", put, latest)
	}

	outer := sr.Schema{
		Schema: `{"type":"record","name":"Box","namespace":"shop","fields":[{"name":"o","type":"shop.Order"}]}`, Type: sr.TypeAvro,
		References: []sr.SchemaReference{{Name: "shop.Order", Subject: "orders-value", Version: 1}},
	}
	box, err := cl.CreateSchema(ctx, "boxes-value", outer)
	noErr(t, "a reference", err)
	users, err := cl.SchemaReferences(ctx, "orders-value", 1)
	noErr(t, "who refers", err)
	if len(users) != 1 || users[0].ID != box.ID {
		t.Errorf("who refers: %+v", users)
	}
	_, err = cl.DeleteSubject(ctx, "orders-value", sr.SoftDelete)
	wantCode(t, "deleting what is in use", err, 42206)

	stranger := registryClient(t, srv.URL(), tokens["shop"])
	if _, err := stranger.Subjects(ctx); err != nil {
		t.Errorf("a producer reads: %v", err)
	}
	_, err = stranger.CreateSchema(ctx, "sneaky-value", avro(orderV1))
	wantCode(t, "a producer registers", err, 40301)

	srv.Kill()
	srv.Restart()
	text, err := cl.SchemaTextByID(ctx, second.ID)
	noErr(t, "text after a kill", err)
	if text != orderV2 {
		t.Errorf("text after a kill: %s", text)
	}
	subjects, err := cl.Subjects(ctx)
	noErr(t, "subjects", err)
	if want := []string{"boxes-value", "orders-value", "shop.order"}; !slices.Equal(subjects, want) {
		t.Errorf("subjects %v, want %v", subjects, want)
	}
	for _, r := range cl.Compatibility(ctx, "shop.order") {
		if r.Err != nil || r.Level != sr.CompatFullTransitive {
			t.Errorf("level: %+v", r)
		}
	}
	for _, r := range cl.ResetCompatibility(ctx, "shop.order") {
		noErr(t, "reset level", r.Err)
	}
	for _, r := range cl.Compatibility(ctx, sr.GlobalSubject) {
		if r.Err != nil || r.Level != sr.CompatBackward {
			t.Errorf("level of the registry: %+v", r)
		}
	}
	for _, r := range cl.SetMode(ctx, sr.ModeReadOnly, "boxes-value") {
		noErr(t, "set mode", r.Err)
	}
	_, err = cl.DeleteSubject(ctx, "boxes-value", sr.SoftDelete)
	wantCode(t, "deleting what is read-only", err, 42205)
	for _, r := range cl.ResetMode(ctx, "boxes-value") {
		noErr(t, "reset mode", r.Err)
	}
	for _, how := range []sr.DeleteHow{sr.SoftDelete, sr.HardDelete} {
		gone, err := cl.DeleteSubject(ctx, "boxes-value", how)
		noErr(t, "delete", err)
		if !slices.Equal(gone, []int{1}) {
			t.Errorf("deleted %v", gone)
		}
	}
	_, err = cl.SchemaByID(ctx, box.ID)
	wantCode(t, "an id that is gone", err, 40403)
}
