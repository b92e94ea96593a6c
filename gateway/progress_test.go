package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// deadlines is a response writer that keeps the read deadlines set on it.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// Bytes that trickle do not buy time; only progress does.
func TestTricklingBodyGetsNoMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		b := &guardedBody{
			src: io.NopCloser(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 250)))), rc: http.NewResponseController(d),
			limit: 1 << 20, window: 10 * time.Second, progress: 100,
		}
		start := time.Now()
		b.extend()
		buf := make([]byte, 10)
		for i := range 250 {
			if _, err := b.Read(buf); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second) // of virtual time: a byte a second
			// One deadline at first, one more for every 100 bytes.
			if want := 1 + (i+1)/100; len(d.set) != want {
				t.Fatalf("after %d bytes %d deadlines were set; want %d", i+1, len(d.set), want)
			}
		}
		if last := d.set[len(d.set)-1]; !last.Before(start.Add(250 * time.Second)) {
			t.Errorf("the deadline %s would not have ended a body of a byte a second", last.Sub(start))
		}
		if _, err := b.Read(buf); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if !d.set[len(d.set)-1].IsZero() {
			t.Error("the deadline outlives the body")
		}
	})
}

func TestBodyErrorsAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code headgate.Code
	}{
		"deadline":  {os.ErrDeadlineExceeded, headgate.CodeTimeout},
		"cut":       {io.ErrUnexpectedEOF, headgate.CodeSyntax},
		"malformed": {errors.New("invalid byte in chunk length"), headgate.CodeSyntax},
	} {
		t.Run(name, func(t *testing.T) {
			b := &guardedBody{src: io.NopCloser(iotest.ErrReader(tc.err)), rc: http.NewResponseController(httptest.NewRecorder()), limit: 10}
			_, err := b.Read(make([]byte, 5))
			if headgate.CodeOf(err) != tc.code || headgate.AsError(err).Fix == "" && tc.code == headgate.CodeSyntax {
				t.Errorf("%v", err)
			}
		})
	}
}
