package node

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/router"
)

// Config is the whole configuration of a node, as read from YAML. Zero values
// mean defaults; every field is optional in dev mode.
type Config struct {
	// Version of the file format; 1.
	Version int `yaml:"version"`
	// Data is the folder of everything embedded. Default ./.headgate.
	Data string `yaml:"data"`
	// Listen is the address of the HTTP API. Default 127.0.0.1:7420.
	Listen string `yaml:"listen"`
	// Hosts are the names, without port, by which clients call a node that a
	// proxy on the same host stands before. Over loopback no other name but
	// localhost is served; over other connections any is when there are none.
	Hosts []string `yaml:"hosts"`
	// Origins are the web origins, such as https://desk.example.org, whose pages
	// may call the API; by default the node's own alone.
	Origins []string `yaml:"origins"`
	// Store says where control state lives.
	Store StoreConfig `yaml:"store"`
	// Broker says where events live.
	Broker BrokerConfig `yaml:"broker"`
	// Durability is fsync (default: an acknowledged event survives power loss
	// of the host) or relaxed (it survives a crash of the process only).
	Durability string `yaml:"durability"`
	// Defaults are the limits of types and subscriptions that name none.
	Defaults Defaults `yaml:"defaults"`
	// Contracts says where contracts come from and how strict they are.
	Contracts Contracts `yaml:"contracts"`
	// Principals are who may publish and consume. One that leaves the file is
	// removed at the next start, with its tokens.
	Principals []Principal `yaml:"principals"`
	// Streams are the declared streams, by name.
	Streams map[string]Stream `yaml:"streams"`
	// Types are the declared event types, by type or pattern.
	Types map[string]Type `yaml:"types"`
	// Subscriptions are the declared subscriptions, by name.
	Subscriptions map[string]Subscription `yaml:"subscriptions"`
	// Leases says which databases and services know of new leases.
	Leases Leases `yaml:"leases"`
	// Quarantine says how long and how much is kept.
	Quarantine Quarantine `yaml:"quarantine"`
	// Limits bound what the HTTP API takes at once.
	Limits Limits `yaml:"limits"`
	// Sources are not available in this version; must be empty.
	Sources map[string]any `yaml:"sources"`
	// Outbox are the databases whose outbox the node relays.
	Outbox []Outbox `yaml:"outbox"`

	// Dev turns on what only a developer's machine may have: draft contracts
	// for unknown types and an admin token in the data folder.
	Dev bool `yaml:"-"`
	// Memory keeps everything in memory (dev only).
	Memory bool `yaml:"-"`
}

// StoreConfig selects the store driver.
type StoreConfig struct {
	// Driver is sqlite (default) or postgres.
	Driver string `yaml:"driver"`
	// URL locates the database of postgres, such as
	// postgres://USER@HOST:5432/DATABASE with the parameters of libpq. With a
	// password in it, write env:NAME or file:PATH. Not for sqlite.
	URL Secret `yaml:"url"`
}

// BrokerConfig selects the broker driver.
type BrokerConfig struct {
	// Driver is nats or memory (dev only).
	Driver string `yaml:"driver"`
	// URL of an outside server, such as nats://host:4222. Empty: embedded.
	URL Secret `yaml:"url"`
	// Credentials is the path of a NATS credentials file for URL.
	Credentials string `yaml:"credentials"`
	// Prefix begins the names of the broker's own streams and subjects: nodes
	// with stores of their own need one each on one server. 1 to 32 capital
	// letters, digits and "_"; default HG.
	Prefix string `yaml:"prefix"`
	// Replicas of each partition on an outside cluster; default 1.
	Replicas int `yaml:"replicas"`
}

// Defaults are the limits of types and subscriptions that name none.
type Defaults struct {
	// TTL is the number of hops a causal tree may be deep; default 16.
	TTL int `yaml:"ttl"`
	// Gas is the number of events a causal tree may have; default 1000.
	Gas int `yaml:"gas"`
	// Breadth is the number of children one delivery may have; default 64.
	Breadth int `yaml:"breadth"`
	// Repeats is how often one principal and type may come on one causal path; default 4.
	Repeats int `yaml:"repeats"`
	// Attempts of a delivery before it is parked; default 8. It and the backoff
	// hold for subscriptions made by API or CLI, too, and are looked up when the
	// node starts.
	Attempts int `yaml:"attempts"`
	// Backoff between attempts, MIN..MAX; default 1s..10m.
	Backoff string `yaml:"backoff"`
	// PayloadMax is the largest payload; default 512KiB.
	PayloadMax Size `yaml:"payload_max"`
	// Retain is how long events are kept, in the default stream too; default 7d,
	// at most 18250d.
	Retain Duration `yaml:"retain"`
	// Roots is the rate of causal trees that a principal with the right may
	// start; default 100/s.
	Roots Rate `yaml:"roots"`
}

// Contracts says where contracts come from and how strict they are.
type Contracts struct {
	// Dir is a folder of *.json schemas to register at start, subject = file
	// name without the ending. Like every path here it is relative to the folder
	// in which the node is started.
	Dir string `yaml:"dir"`
	// Compatibility of a new version with earlier ones: none, backward (default),
	// backward_transitive, forward, forward_transitive, full or
	// full_transitive. The default in dev mode is none. A subject or the whole
	// registry may be configured otherwise by its API.
	Compatibility string `yaml:"compatibility"`
	// UnknownFields is as_schema (default) or refuse: every object closed.
	UnknownFields string `yaml:"unknown_fields"`
}

// Principal is a declared principal.
type Principal struct {
	// Name is its unique name.
	Name string `yaml:"name"`
	// Kind is human, agent or system.
	Kind headgate.Kind `yaml:"kind"`
	// Roles are rights over the node: viewer, developer, operator, approver, admin.
	Roles []headgate.Role `yaml:"roles"`
	// Emit and Listen are the types it may publish and consume.
	Emit   []string `yaml:"emit"`
	Listen []string `yaml:"listen"`
	// Lease are the resources it may take leases on: a resource, PREFIX/* or *.
	Lease []string `yaml:"lease"`
	// Roots is none (default) or the rate at which it may start causal trees.
	Roots Roots `yaml:"roots"`
	// Token is a reference (env:NAME or file:PATH) to a token chosen by the
	// operator. Without it, issue one by headgate principal rotate NAME.
	Token Secret `yaml:"token"`
}

// Stream is a declared stream.
type Stream struct {
	// Types are the patterns of the types it takes.
	Types []string `yaml:"types"`
	// Partitions of the stream; default 4. It cannot change later.
	Partitions int `yaml:"partitions"`
	// Retain is how long events are kept once settled; default defaults.retain.
	Retain Duration `yaml:"retain"`
	// Format is frame.
	Format string `yaml:"format"`
	// Index is on (default) or off: off keeps events of bulk streams out of
	// explain and tree.
	Index string `yaml:"index"`
}

// Type is a declared event type.
type Type struct {
	// Key is a CEL expression for the ordering key, such as data.ticket_id.
	Key string `yaml:"key"`
	// TTL, Gas, Breadth and Repeats override the defaults.
	TTL     int `yaml:"ttl"`
	Gas     int `yaml:"gas"`
	Breadth int `yaml:"breadth"`
	Repeats int `yaml:"repeats"`
	// PayloadMax overrides the default.
	PayloadMax Size `yaml:"payload_max"`
	// Contract is the subject of the contract; default the type itself.
	Contract string `yaml:"contract"`
	// Origins are the origin classes under which the type may appear; all by default.
	Origins []headgate.Origin `yaml:"origins"`
	// Fence is a template of the resource whose lease publishing demands, such
	// as 'ticket/{data.ticket_id}'; none by default.
	Fence string `yaml:"fence"`
	// Expire is how long after admission an event is worth delivering.
	Expire Duration `yaml:"expire"`
}

// Subscription is a declared subscription: what PUT /v1/subscriptions takes.
type Subscription struct {
	router.Spec
}

// Leases says who knows of new leases.
type Leases struct {
	// Seal are the targets that an acquisition may name, by name: databases
	// beside the node's own, and services, that are to know of a lease before it
	// is granted.
	Seal map[string]SealTarget `yaml:"seal"`
}

// SealTarget is a database or a service that refuses superseded workers by
// itself.
type SealTarget struct {
	// URL locates the database or the seal endpoint of the service:
	// postgres://USER@HOST:5432/DATABASE, sqlite:PATH or https://HOST/PATH. With
	// a password in it, write env:NAME or file:PATH. A database's role needs the
	// right to call the guard's functions, or to write the table. A service is
	// called at this host alone, which may be in a private network, and without
	// TLS by http://; redirects are not followed.
	URL Secret `yaml:"url"`
	// Schema of the guard's functions (PostgreSQL); default headgate.
	Schema string `yaml:"schema"`
	// Table is a fence table of package fencetable, where there are no guards
	// of headgate lease fence-table.
	Table string `yaml:"table"`
	// Audience is what a service calls itself in lease tokens, and no other
	// target; default the target's name.
	Audience string `yaml:"audience"`
}

// Quarantine says how long and how much is kept.
type Quarantine struct {
	// Retain is how long records are kept; default 14d, at most 18250d.
	Retain Duration `yaml:"retain"`
	// RefusalQuota is how many refusals are kept per principal and hour;
	// default 1000. Beyond it they are counted and sampled.
	RefusalQuota int `yaml:"refusal_quota"`
}

// Outbox is a database that headgate outbox init prepared.
type Outbox struct {
	// Name is a unique name for logs, records and figures.
	Name string `yaml:"name"`
	// URL locates the database, such as postgres://USER@HOST:5432/DATABASE or
	// sqlite:PATH. With a password in it, write env:NAME or file:PATH. A
	// PostgreSQL role needs REPLICATION and membership of headgate_relay.
	URL Secret `yaml:"url"`
	// Principal is who writes to an SQLite database, which has no roles.
	Principal string `yaml:"principal"`
	// Roles maps PostgreSQL roles to the principals that they write as. A role
	// that is not listed writes as the principal of its own name.
	Roles map[string]string `yaml:"roles"`
	// Retain is how long rows stay in the outbox once published; default 1d,
	// at most 18250d.
	Retain Duration `yaml:"retain"`
	// WALBudget is how much log the relay may make PostgreSQL keep; default
	// 4GiB. Beyond it the rows are read from the table.
	WALBudget Size `yaml:"wal_budget"`
}

// Limits bound what the HTTP API takes at once.
type Limits struct {
	// InFlight is the number of request bytes held at once; default 256MiB, at
	// least 16MiB.
	InFlight Size `yaml:"in_flight"`
	// Connections open at once; default 4096.
	Connections int `yaml:"connections"`
	// Body is the largest bulk body; default 256MiB, streamed; at least 1MiB.
	Body Size `yaml:"body"`
}

// Roots is the right to start causal trees: none, or a rate such as 100/s, or
// {rate: 100/s, burst: 500}.
type Roots struct {
	// Rate is the sustained rate.
	Rate Rate `yaml:"rate"`
	// Burst is how many may come at once; default twice the rate of a second.
	Burst int  `yaml:"burst"`
	None  bool `yaml:"-"`
}

// Rate is a number of events a second, written "100/s" or "6000/m".
type Rate float64

// Size is a number of bytes, written "512KiB", "1MiB" or "4096".
type Size int64

// Duration is a time.Duration that also reads days: "7d".
type Duration time.Duration

// Secret is a value given by reference, env:NAME or file:PATH, so that the
// file itself holds no secret. A URL without a password may stand literally.
type Secret string
