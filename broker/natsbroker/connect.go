package natsbroker

import (
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate"
)

// reconnectWait is the pause between attempts to reach an outside server.
const reconnectWait = 250 * time.Millisecond

// connect opens the client connection: to the embedded server when there is
// one, else to the servers that cfg names. lost is called when the connection
// breaks, back when there is one again.
func connect(cfg Config, e *embedded, lost, back func()) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name("headgate"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		// What was not sent when the connection broke is not sent later: the
		// writer repeats a frame itself, in order and with its expectation.
		nats.ReconnectBufSize(-1),
		nats.ReconnectHandler(func(*nats.Conn) {
			cfg.Logger.Info("connection to NATS is back")
			back()
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			lost()
			if err != nil {
				cfg.Logger.Warn("connection to NATS lost", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Logger.Warn("NATS client", "error", err)
		}),
	}
	url := cfg.URL
	if e != nil {
		opts = append(opts, nats.InProcessServer(e), nats.PingInterval(24*time.Hour))
		url = nats.DefaultURL // not dialled
	} else {
		opts = append(opts, nats.PingInterval(cfg.pingEvery), nats.MaxPingsOutstanding(pingsWithout))
		opts = append(opts, cfg.Auth.options()...)
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeUnavailable, "the NATS server at %s cannot be reached: %v", addresses(url), err)
	}
	if got := nc.MaxPayload(); e == nil && got < int64(cfg.largestMessage()) {
		nc.Close()
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "the NATS server takes messages of %d bytes, %d are needed: raise its max_payload or lower MaxEventBytes and FrameBytes", got, cfg.largestMessage())
	}
	return nc, nil
}

// addresses are those of the servers in a list of URLs, which may hold secrets.
func addresses(urls string) string {
	var hosts []string
	for text := range strings.SplitSeq(urls, ",") {
		text = strings.TrimSpace(text)
		if !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		if u, err := url.Parse(text); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	return strings.Join(hosts, ", ")
}

func (a Auth) options() []nats.Option {
	var opts []nats.Option
	if a.User != "" {
		opts = append(opts, nats.UserInfo(a.User, a.Password))
	}
	if a.Token != "" {
		opts = append(opts, nats.Token(a.Token))
	}
	if a.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(a.CredsFile))
	}
	if a.CAFile != "" {
		opts = append(opts, nats.RootCAs(a.CAFile))
	}
	if a.CertFile != "" {
		opts = append(opts, nats.ClientCert(a.CertFile, a.KeyFile))
	}
	return opts
}

// largestMessage is the size of the largest frame, with room for the headers
// of the broker message.
func (c Config) largestMessage() int {
	const room = 1 << 10
	return max(c.FrameBytes+c.FrameEvents*16, c.MaxEventBytes+16) + frameHeaderLen + room
}
