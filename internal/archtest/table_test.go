package archtest

// rule says what one package is for and what it may import.
type rule struct {
	pkg     string   // path below the module; "." is the root
	role    string   // why it exists, in one line
	imports []string // packages of this module, beyond the root package
	vendors []string // modules or packages of others; "std" is always allowed
}

// table is the architecture. Dependencies point one way: cmd → node and
// drivers → components → ports → headgate → standard library. A driver
// imports its port and its vendor, never a component or another driver; node
// never imports a driver.
var table = []rule{
	{pkg: ".", role: "vocabulary", imports: []string{"internal/jsontext"}},

	{pkg: "internal/jsontext", role: "strict JSON tokenizer"},
	{pkg: "internal/eventcodec", role: "binary form of an event"},
	{pkg: "internal/condition", role: "CEL over one event", imports: []string{"internal/jsontext"}, vendors: []string{"cel.dev/cel-go", "google.golang.org/protobuf"}},
	{pkg: "internal/resource", role: "faults of resource names, patterns and templates", vendors: []string{"golang.org/x/text"}},
	{pkg: "internal/outside", role: "finds outside test data"},
	{pkg: "internal/powerloss", role: "write-ordering harness", vendors: []string{"golang.org/x/sys"}},
	{pkg: "internal/filelock", role: "locks that end with the process", vendors: []string{"golang.org/x/sys"}},
	{pkg: "internal/archtest", role: "the architecture as a test"},
	{pkg: "internal/gendocs", role: "generates reference pages", imports: []string{"*"}},
	{pkg: "internal/buildinfo", role: "version of this build"},
	{pkg: "internal/bench", role: "figures as ratios", imports: []string{"*"}, vendors: []string{"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "github.com/ncruces/go-sqlite3", "github.com/santhosh-tekuri/jsonschema/v6", "github.com/twmb/avro", "github.com/jackc/pgx/v5"}},
	{pkg: "internal/nodetest", role: "the parts of a node behind HTTP, for tests", imports: []string{"*"}},
	{pkg: "internal/servertest", role: "runs the real command for tests", imports: []string{"client"}},
	{pkg: "internal/pgtest", role: "PostgreSQL servers for tests", vendors: []string{"github.com/jackc/pgx/v5"}},
	{pkg: "internal/pgblock", role: "whose sessions keep a row of PostgreSQL", vendors: []string{"github.com/jackc/pgx/v5"}},
	{pkg: "internal/relaytest", role: "rig and kill harness of the relays' tests", imports: []string{"*"}, vendors: []string{"github.com/nats-io/nats-server/v2"}},
	{pkg: "internal/outbound", role: "the one way out: HTTP calls to addresses that somebody wrote down"},
	{pkg: "internal/e2e", role: "tests of the real command"},

	{pkg: "broker", role: "port: streams of events"},
	{pkg: "broker/brokertest", role: "conformance suite of broker drivers", imports: []string{"broker", "internal/eventcodec"}, vendors: []string{"github.com/google/go-cmp", "go.uber.org/goleak"}},
	{pkg: "broker/internal/window", role: "admission dedupe, shared by drivers", imports: []string{"broker"}},
	{pkg: "broker/membroker", role: "driver: memory, the reference, with fault hooks", imports: []string{"broker", "broker/internal/window", "internal/eventcodec"}},
	{pkg: "broker/natsbroker", role: "driver: NATS JetStream, embedded or outside", imports: []string{"broker", "broker/internal/window", "internal/eventcodec"}, vendors: []string{"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "golang.org/x/sys"}},

	{pkg: "store", role: "port: control state"},
	{pkg: "store/storetest", role: "conformance suite of store drivers", imports: []string{"store"}, vendors: []string{"pgregory.net/rapid"}},
	{pkg: "store/internal/sqlstore", role: "what the SQL drivers share: roles, queue, migrations", imports: []string{"store"}},
	{pkg: "store/sqlitestore", role: "driver: SQLite", imports: []string{"store", "store/internal/sqlstore", "internal/filelock"}, vendors: []string{"github.com/ncruces/go-sqlite3"}},
	{pkg: "store/pgstore", role: "driver: PostgreSQL", imports: []string{"store", "store/internal/sqlstore", "internal/pgblock"}, vendors: []string{"github.com/jackc/pgx/v5"}},

	{pkg: "topology", role: "declared streams and types", imports: []string{"broker", "internal/condition", "internal/resource"}},
	{pkg: "contract", role: "compiled contracts", imports: []string{"internal/jsontext"}, vendors: []string{"github.com/santhosh-tekuri/jsonschema/v6", "github.com/twmb/avro"}},
	{pkg: "registry", role: "subjects and versions of contracts", imports: []string{"contract", "registry/compat", "store", "internal/jsontext"}, vendors: []string{"github.com/google/uuid"}},
	{pkg: "registry/compat", role: "whether two versions of a schema can live side by side", vendors: []string{"github.com/twmb/avro"}},
	{pkg: "registry/confluent", role: "HTTP: the face for clients of a Confluent registry", imports: []string{"api", "gateway", "principal", "registry", "registry/compat", "internal/jsontext"}},
	{pkg: "principal", role: "who may do what; tokens", imports: []string{"store", "internal/resource"}},
	{pkg: "causal", role: "tokens, TTL, gas, loops, rates", imports: []string{"store"}, vendors: []string{"golang.org/x/time"}},
	{pkg: "quarantine", role: "refused and parked events", imports: []string{"store", "internal/buildinfo", "internal/jsontext"}, vendors: []string{"github.com/google/uuid"}},
	{pkg: "lease", role: "fenced leases", imports: []string{"lease/hold", "store", "internal/resource"}},
	{pkg: "lease/fence", role: "what the guards of users' databases share"},
	{pkg: "lease/fencepg", role: "guards of users' own PostgreSQL data", imports: []string{"lease/fence", "internal/pgblock"}, vendors: []string{"github.com/jackc/pgx/v5"}},
	{pkg: "lease/fencesqlite", role: "guards of users' own SQLite data", imports: []string{"lease/fence"}},
	{pkg: "lease/hold", role: "keeps a lease while its work lasts"},
	{pkg: "lease/internal/sim", role: "leases in a simulated world; tests only"},
	{pkg: "lease/fencetable", role: "highest epochs beside data in any SQL database", imports: []string{"lease"}},
	{pkg: "lease/fencehttp", role: "middleware of services that refuse stale workers", imports: []string{"api", "lease", "lease/fencetable"}},
	{pkg: "perimeter", role: "the admission pipeline", imports: []string{"broker", "causal", "contract", "lease", "quarantine", "store", "topology", "internal/condition", "internal/eventcodec", "internal/jsontext", "internal/resource"}, vendors: []string{"github.com/google/uuid"}},
	{pkg: "router", role: "deliveries", imports: []string{"broker", "causal", "lease", "perimeter", "quarantine", "store", "topology", "internal/condition", "internal/eventcodec", "internal/jsontext", "internal/resource"}},
	{pkg: "index", role: "one event, its tree, its explanation", imports: []string{"broker", "causal", "quarantine", "router", "store", "topology"}},

	{pkg: "outbox", role: "events inside the caller's transaction", vendors: []string{"github.com/google/uuid"}},
	{pkg: "outbox/outboxpgx", role: "outbox for pgx transactions", imports: []string{"outbox"}, vendors: []string{"github.com/jackc/pgx/v5"}},
	{pkg: "outbox/outboxsql", role: "outbox for database/sql transactions", imports: []string{"outbox"}},
	{pkg: "outbox/outboxsqlite", role: "outbox for SQLite transactions", imports: []string{"outbox"}},
	{pkg: "outbox/outboxcheck", role: "contracts in the writer's process", imports: []string{"api", "contract"}},
	{pkg: "inbox", role: "which events a consumer has handled"},
	{pkg: "inbox/internal/postgres", role: "what the inbox adapters of PostgreSQL share"},
	{pkg: "inbox/inboxpgx", role: "inbox in PostgreSQL: installation, pgx transactions", imports: []string{"inbox", "inbox/internal/postgres"}, vendors: []string{"github.com/jackc/pgx/v5"}},
	{pkg: "inbox/inboxsql", role: "inbox for database/sql transactions", imports: []string{"inbox", "inbox/internal/postgres"}},
	{pkg: "inbox/inboxsqlite", role: "inbox in SQLite", imports: []string{"inbox"}},
	{pkg: "unit", role: "unit of work: fence guard, inbox, writes, outbox", imports: []string{"inbox", "lease/fence", "outbox"}},
	{pkg: "unit/unitpgx", role: "units of work in pgx transactions", imports: []string{"inbox", "inbox/inboxpgx", "lease/fence", "lease/fencepg", "outbox", "outbox/outboxpgx", "unit"}, vendors: []string{"github.com/jackc/pgx/v5"}},
	{pkg: "unit/unitsql", role: "units of work in database/sql transactions", imports: []string{"inbox", "inbox/inboxsql", "lease/fence", "lease/fencepg", "outbox", "outbox/outboxsql", "unit"}},
	{pkg: "unit/unitsqlite", role: "units of work in SQLite", imports: []string{"inbox", "inbox/inboxsqlite", "lease/fence", "lease/fencesqlite", "outbox", "outbox/outboxsqlite", "unit"}},
	{pkg: "unit/worker", role: "pulls deliveries for units of work and settles them", imports: []string{"api", "client", "unit"}},
	{pkg: "unit/handler", role: "units of work as handlers of this process", imports: []string{"router", "unit"}},
	{pkg: "relay", role: "database log → perimeter", imports: []string{"broker", "perimeter", "quarantine"}},
	{pkg: "relay/sqliterelay", role: "driver: outboxes in SQLite databases", imports: []string{"relay", "internal/filelock"}},
	{pkg: "relay/pgrelay", role: "driver: the log of PostgreSQL", imports: []string{"relay"}, vendors: []string{"github.com/jackc/pgx/v5", "github.com/jackc/pglogrepl"}},

	{pkg: "api", role: "JSON shapes of the HTTP API"},
	{pkg: "client", role: "Go client of the HTTP API", imports: []string{"api", "lease/hold"}},
	{pkg: "telemetry", role: "observers: metrics", vendors: []string{"github.com/prometheus/client_golang"}},
	{pkg: "gateway", role: "HTTP: publish, pull, settle, tail, leases", imports: []string{"api", "broker", "lease", "perimeter", "principal", "registry", "router", "store", "topology", "contract", "internal/jsontext"}},
	{pkg: "admin", role: "HTTP: operator API", imports: []string{"api", "broker", "causal", "contract", "gateway", "index", "principal", "quarantine", "registry", "router", "store", "topology", "internal/buildinfo", "internal/jsontext"}, vendors: []string{"github.com/danielgtaylor/huma/v2"}},
	{pkg: "node", role: "assembly: Config → Node", imports: []string{"admin", "api", "broker", "causal", "contract", "gateway", "index", "lease", "lease/hold", "perimeter", "principal", "quarantine", "registry", "registry/compat", "registry/confluent", "relay", "router", "store", "telemetry", "topology", "internal/buildinfo", "internal/resource", "internal/condition"}, vendors: []string{"go.yaml.in/yaml/v3"}},
	{pkg: "cmd/headgate", role: "the command", imports: []string{"*"}, vendors: []string{"github.com/spf13/cobra", "github.com/jackc/pgx/v5", "github.com/ncruces/go-sqlite3", "golang.org/x/term", "go.yaml.in/yaml/v3"}},
}

// interfaces lists the exported interfaces outside the ports, each with the
// reason why it is one.
var interfaces = map[string]string{
	"causal.Claims":       "the router knows claims; causal must not import it",
	"perimeter.Contracts": "declared by its consumer",
	"fencehttp.Seen":      "where a service keeps what it has seen is the service's choice",
	"fencehttp.Keys":      "keys come from a node or from a file of the service",
	"hold.Keeper":         "leases come from a node over HTTP or from this process",
	"perimeter.Outbox":    "the router publishes the node outbox; perimeter must not import it",
	"perimeter.Drafter":   "declared by its consumer; nil turns drafts off",
	"outbox.Tx":           "adapters make one of the caller's transaction",
	"inbox.Tx":            "adapters make one of the caller's transaction",
	"unit.DB":             "adapters make one of the caller's database",
	"outbox.Checker":      "declared by its consumer; users may plug in their own",
	"outboxcheck.Getter":  "the client, declared by its consumer",
	"relay.Source":        "a database's log; drivers implement it",
	"relay.Session":       "a database's log; drivers implement it",
	"relay.Teller":        "a database's log; drivers may implement it",
	"relay.Aside":         "a database's log; drivers may implement it",
	"relay.Admitter":      "the perimeter, declared by its consumer",
	"relay.Keeper":        "the quarantine, declared by its consumer",
	"router.Principals":   "declared by its consumer",
	"sqlstore.Session":    "a driver's transaction, under the roles that drivers share",
	"sqlstore.Statement":  "a driver's statement",
	"sqlstore.Parameters": "a driver's statement",
	"sqlstore.Rows":       "a driver's statement",
	"brokertest.Harness":  "a driver's way into the suite",
	"storetest.Harness":   "a driver's way into the suite",
}

// mayImportTesting lists the packages for tests only.
var mayImportTesting = []string{"internal/nodetest", "internal/pgtest", "internal/relaytest", "internal/servertest", "broker/brokertest", "store/storetest", "internal/outside", "internal/powerloss"}
