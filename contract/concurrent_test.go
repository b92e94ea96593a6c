package contract

import (
	"bytes"
	"sync"
	"testing"
)

// One contract serves many goroutines, and each gets the verdict of its own
// payload.
func TestConcurrentChecks(t *testing.T) {
	c := compileOK(t, smallSchema, Policy{CloseObjects: true})
	bad := []byte(`{"order_id":"x","items":[{"sku":"ABC","qty":0,"extra":1}],"status":"payed"}`)
	want := encode(t, c.Check(bad))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if v := c.Check([]byte(smallPayload)); v != nil {
					t.Errorf("%q", brief(v))
					return
				}
				if got := encode(t, c.Check(bad)); !bytes.Equal(got, want) {
					t.Errorf("%s\nwant %s", got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
