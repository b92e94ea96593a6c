package natsbroker

import (
	"log/slog"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// Defaults of [Config].
const (
	DefaultMaxEventBytes = 1 << 20
	DefaultFrameBytes    = 256 << 10
	DefaultFrameEvents   = 1024
	DefaultDedupeWindow  = 10 * time.Minute
	DefaultDedupeIDs     = 1 << 20
	DefaultPrefix        = "HG"
	DefaultMinFree       = 1 << 30
)

// maxPayload is the largest message that the embedded server takes. It leaves
// room for the largest event that Config allows.
const maxPayload = 8 << 20

// Config describes a driver. Exactly one of Dir and URL is set.
type Config struct {
	// Dir is the data folder of a server in this process. One process at a
	// time may open it.
	Dir string
	// URL names an outside server or, separated by commas, several of one
	// cluster: nats://, tls://, ws:// or wss://.
	URL string
	// Auth says how to log in to an outside server.
	Auth Auth

	// Durability is what Stored survives. With Dir: fsync (default), or
	// process, which leaves it to the server to sync every two minutes. With
	// URL: what the servers are configured for, which a client cannot see:
	// process (default for one replica), fsync, or quorum (default for three
	// or more).
	Durability broker.Durability
	// Replicas of each partition on a cluster; default 1.
	Replicas int
	// Prefix begins the names of all broker streams and subjects; default
	// "HG". Capital letters, digits and "_".
	Prefix string

	MaxEventBytes int           // default 1 MiB, at most 7 MiB, of the encoded event
	FrameBytes    int           // bound of a frame's events; default 256 KiB
	FrameEvents   int           // bound of a frame's events; default 1,024
	DedupeWindow  time.Duration // default 10 minutes
	DedupeIDs     int           // ids remembered per stream at least; default 1,048,576

	// MinFree is the free space of Dir's file system below which Publish
	// answers Throttled with disk_full. Default: 1 GiB or a twentieth of the
	// file system, whichever is less. Negative switches the check off.
	MinFree int64

	// Damaged is told of stored messages that cannot be read, once for each
	// reading. It must not block. Each is logged at level error besides.
	Damaged func(Damage)
	// Logger takes the lifecycle and the server's warnings; default: nowhere.
	Logger *slog.Logger
	// Now is the clock behind store times and the dedupe window; default
	// time.Now.
	Now func() time.Time

	// probe writes to Dir as the server would; tests replace it.
	probe func(dir string) error
	// awayAfter and pingEvery replace the constants of their names in tests.
	awayAfter, pingEvery time.Duration
}

// Auth says how to log in to an outside server. The zero value does not.
type Auth struct {
	User, Password string
	Token          string
	// CredsFile is the path of a file with a user JWT and its seed.
	CredsFile string
	// CAFile, CertFile and KeyFile are paths of PEM files: the authorities to
	// trust instead of the system's, and a client certificate.
	CAFile, CertFile, KeyFile string
}

// Damage describes a stored message that cannot be read as a frame.
type Damage struct {
	Stream    string
	Partition uint32
	Sequence  uint64 // of the message in its broker stream
	Err       error
}

// Validate reports every problem at once, naming the fields.
func (c Config) Validate() error {
	var wrong []string
	say := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	say((c.Dir == "") == (c.URL == ""), "exactly one of Dir and URL is needed")
	say(c.Dir != "" && c.Replicas > 1, "Replicas: an embedded server has one")
	say(c.Replicas < 0 || c.Replicas > 5, "Replicas: want 1 to 5")
	say(c.Dir != "" && c.Auth != (Auth{}), "Auth: an embedded server needs none")
	say((c.Auth.CertFile == "") != (c.Auth.KeyFile == ""), "Auth: CertFile and KeyFile belong together")
	say(c.MaxEventBytes < 0 || c.MaxEventBytes > maxPayload-(1<<20), "MaxEventBytes: want at most 7 MiB")
	say(c.FrameBytes < 0 || c.FrameBytes > maxPayload-(1<<20), "FrameBytes: want at most 7 MiB")
	say(c.FrameEvents < 0 || c.FrameEvents > 1<<15, "FrameEvents: want at most 32768")
	say(c.DedupeWindow < 0 || c.DedupeIDs < 0 || c.DedupeIDs > 1<<30, "DedupeWindow, DedupeIDs: out of range")
	say(c.Prefix != "" && !validPrefix(c.Prefix), "Prefix: want 1 to 32 capital letters, digits and \"_\"")
	switch c.Durability {
	case "", broker.DurabilityFsync, broker.DurabilityProcess:
	case broker.DurabilityQuorum:
		say(c.Replicas < 3, "Durability: quorum needs at least 3 replicas")
	default:
		say(true, "Durability: want fsync, process or quorum")
	}
	if len(wrong) == 0 {
		return nil
	}
	return headgate.NewError(headgate.CodeInvalidConfig, "natsbroker: %s", strings.Join(wrong, "; "))
}

func (c Config) withDefaults() Config {
	or := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	or(&c.MaxEventBytes, DefaultMaxEventBytes)
	or(&c.FrameBytes, DefaultFrameBytes)
	or(&c.FrameEvents, DefaultFrameEvents)
	or(&c.DedupeIDs, DefaultDedupeIDs)
	or(&c.Replicas, 1)
	if c.DedupeWindow == 0 {
		c.DedupeWindow = DefaultDedupeWindow
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Durability == "" {
		switch {
		case c.Dir != "":
			c.Durability = broker.DurabilityFsync
		case c.Replicas >= 3:
			c.Durability = broker.DurabilityQuorum
		default:
			c.Durability = broker.DurabilityProcess
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.probe == nil {
		c.probe = probe
	}
	if c.awayAfter == 0 {
		c.awayAfter = awayAfter
	}
	if c.pingEvery == 0 {
		c.pingEvery = pingEvery
	}
	return c
}

func (c Config) caps() broker.Caps {
	return broker.Caps{
		Durability:            c.Durability,
		Words:                 c.words(),
		MaxEventBytes:         c.MaxEventBytes,
		DedupeWindow:          c.DedupeWindow,
		DedupeIDs:             c.DedupeIDs,
		DedupeSurvivesRestart: true,
	}
}

func (c Config) words() string {
	embedded := c.Dir != ""
	switch {
	case embedded && c.Durability == broker.DurabilityFsync:
		return "an accepted event is on this host's disk, synced, and survives power loss of the host, though not loss of the disk"
	case embedded:
		return "an accepted event survives a crash of the process; a power cut or a crash of the host may lose the events of the last two minutes"
	case c.Durability == broker.DurabilityQuorum:
		return "an accepted event is with a majority of the NATS servers; whether it survives power loss of all of them is up to their sync_interval, which a client cannot see"
	case c.Durability == broker.DurabilityFsync:
		return "an accepted event is with one NATS server, whose configuration was said to be sync_interval: always; a client cannot check that"
	default:
		return "an accepted event is with one NATS server and survives a crash of its process; a power cut may lose what it did not sync, by default the last two minutes"
	}
}

func validPrefix(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
