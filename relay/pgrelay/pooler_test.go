package pgrelay_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/headgate/headgate"
)

// poolerBefore stands before a server as a pooler does: it passes everything on
// but connections that ask for replication, which it refuses as an unsupported
// parameter.
func poolerBefore(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	must(t, err)
	to := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, in)
			mu.Unlock()
			all.Go(func() {
				defer in.Close()
				start, err := startup(in)
				if err != nil {
					return
				}
				if bytes.Contains(start, []byte("\x00replication\x00")) {
					_, _ = in.Write(fatal("08P01", "unsupported startup parameter: replication"))
					return
				}
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				if _, err := out.Write(start); err != nil {
					return
				}
				all.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
				_, _ = io.Copy(in, out)
			})
		}
	})
	u.Host = l.Addr().String()
	return u.String()
}

// startup reads the first message of a client.
func startup(c net.Conn) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	rest := make([]byte, min(binary.BigEndian.Uint32(head), 1<<16)-4)
	_, err := io.ReadFull(c, rest)
	return append(head, rest...), err
}

// fatal is an error message of the protocol.
func fatal(code, message string) []byte {
	body := "SFATAL\x00VFATAL\x00C" + code + "\x00M" + message + "\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(body)+4)), body...)
}

func wantPooled(t *testing.T, err error) {
	t.Helper()
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidConfig || e.Fix == "" {
		t.Errorf("the relay says %v", err)
	}
}
