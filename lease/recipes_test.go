package lease

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recipe returns a code block of the documentation.
func recipe(t *testing.T, language string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", "leases.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```"+language+"\n")
	code, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatalf("no %s in the documentation", language)
	}
	return code
}

// plainScript takes the types out of the recipe, which not every node does.
var plainScript = strings.NewReplacer(": string", "", ": Record<string, string>", "", " as string", "", ": Function", "")

// TestRecipes runs what the documentation offers to other languages, where
// they are installed.
func TestRecipes(t *testing.T) {
	s := service(t, memory(t))
	var tokens []string
	for range 2 {
		g, err := s.Acquire(t.Context(), worker("a"), Request{Resources: []string{"ticket/ä"}, Audience: []string{"crm"}})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, g[0].Token)
		if err := s.Release(t.Context(), worker("a"), "", g[0].Token); err != nil {
			t.Fatal(err)
		}
	}
	forged := []byte(tokens[0])
	forged[20] ^= 1
	issuer, keys := s.Keys()
	set := map[string]string{}
	for _, k := range keys {
		set[k.ID] = base64.RawURLEncoding.EncodeToString(k.Key)
	}
	input, err := json.Marshal(map[string]any{"old": tokens[0], "new": tokens[1], "forged": string(forged), "keys": set, "issuer": issuer})
	if err != nil {
		t.Fatal(err)
	}
	for language, c := range map[string]struct {
		file, driver string
		probe, run   []string
	}{
		"python": {"recipe.py", pythonDriver, []string{"python3", "-c", "import cryptography"}, []string{"python3"}},
		"ts":     {"recipe.mjs", tsDriver, []string{"node", "-e", ""}, []string{"node"}},
	} {
		t.Run(language, func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), c.probe[0], c.probe[1:]...).CombinedOutput(); err != nil {
				if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
					t.Fatalf("not installed: %v %s", err, out)
				}
				t.Skipf("not installed: %v %s", err, out)
			}
			path := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(path, []byte(plainScript.Replace(recipe(t, language))+c.driver), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), c.run[0], append(c.run[1:], path)...)
			cmd.Stdin = strings.NewReader(string(input))
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "all as expected") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

const pythonDriver = `
import sqlite3, sys
given = json.load(sys.stdin)
keys, issuer = given["keys"], given["issuer"]
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE fences (resource TEXT PRIMARY KEY, epoch INTEGER, nonce TEXT)")
old, new = (verify(given[k], keys, issuer, "crm") for k in ("old", "new"))
assert old[0] == "ticket/\u00e4" and new[1] > old[1]
check(db, *old); check(db, *old); db.commit()
seal(db, given["new"], keys, issuer, "crm"); seal(db, given["new"], keys, issuer, "crm")
assert not db.in_transaction
check(db, *new)
for what in (lambda: check(db, *old), lambda: seal(db, given["old"], keys, issuer, "crm"), lambda: seal(db, given["new"], keys, issuer, "erp"), lambda: check(db, new[0], new[1], "other"), lambda: verify(given["forged"], keys, issuer, "crm"),
             lambda: verify(given["new"], keys, issuer, "erp"), lambda: verify(given["new"], keys, "other", "crm")):
    try:
        what()
    except Exception:
        continue
    sys.exit("something passed that must not")
print("all as expected")
`

const tsDriver = `
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const old = await verify(given.old, given.keys, given.issuer, "crm");
const next = await verify(given.new, given.keys, given.issuer, "crm");
if (old.resource !== "ticket/ä" || !(next.epoch > old.epoch)) throw new Error("not what was granted");
for (const [token, issuer, me] of [[given.forged, given.issuer, "crm"], [given.new, given.issuer, "erp"], [given.new, "other", "crm"]]) {
  let passed = true;
  try { await verify(token, given.keys, issuer, me); } catch { passed = false; }
  if (passed) throw new Error("something passed that must not");
}
let highest = 0n;
const check = async (f) => { if (f.epoch < highest) throw new Error("stale_fence"); highest = f.epoch; };
await seal(given.old, given.keys, given.issuer, "crm", check);
await seal(given.new, given.keys, given.issuer, "crm", check);
if (highest !== next.epoch) throw new Error("the seal did not raise the epoch");
for (const [token, me] of [[given.old, "crm"], [given.new, "erp"], [given.forged, "crm"]]) {
  let passed = true;
  try { await seal(token, given.keys, given.issuer, me, check); } catch { passed = false; }
  if (passed) throw new Error("a seal passed that must not");
}
console.log("all as expected");
`
