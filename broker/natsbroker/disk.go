package natsbroker

import (
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// diskCheckEvery bounds how old the answer about free space may be, while
// there is more of it than closeBy times what is too little. Nearer to that,
// every publish asks: a disk that is written full fails the server for good.
const (
	diskCheckEvery = time.Second
	closeBy        = 4
)

// disk watches the free space behind an embedded server. It asks when somebody
// publishes, never by itself.
type disk struct {
	path string
	min  int64
	now  func() time.Time
	free func(path string) (free, size int64, err error)

	mu    sync.Mutex
	asked time.Time
	near  bool
	low   int64 // bytes free when that was too little, else -1
}

func newDisk(cfg Config) *disk {
	if cfg.Dir == "" || cfg.MinFree < 0 {
		return nil
	}
	return &disk{path: cfg.Dir, min: cfg.MinFree, now: time.Now, free: freeSpace, low: -1}
}

// refusal returns the result for every event while space is low, and whether
// it is. When the system cannot tell, it is not.
func (d *disk) refusal() (broker.Result, bool) {
	if d == nil {
		return broker.Result{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.now(); d.asked.IsZero() || d.near || now.Sub(d.asked) >= diskCheckEvery {
		d.asked, d.low = now, -1
		free, size, err := d.free(d.path)
		least := d.threshold(size)
		d.near = err == nil && free < closeBy*least
		if err == nil && free < least {
			d.low = free
		}
	}
	if d.low < 0 {
		return broker.Result{}, false
	}
	return broker.Throttled(headgate.CodeDiskFull, "%d bytes are free on the disk of the event store", d.low), true
}

func (d *disk) threshold(size int64) int64 {
	if d.min > 0 {
		return d.min
	}
	return min(DefaultMinFree, size/20)
}
