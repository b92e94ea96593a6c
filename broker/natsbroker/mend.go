package natsbroker

import (
	"os"
	"time"
)

// Pauses before a disk that was full is tried, and what is written to try it.
const (
	firstTry   = time.Second
	longestTry = 30 * time.Second
	probeBytes = 4 << 20
)

// mend starts the embedded server anew whenever a full disk made it fail and
// has room again. A server that failed a write stores nothing more; one that
// starts reads what is on the disk, and what was under way is then repeated by
// its writer, which learns what became of it.
//
// Only a full disk is mended so. After another fault of the disk a write may be
// in the system's cache alone, where the new server would take it for stored.
func (b *Broker) mend() {
	for {
		select {
		case <-b.embedded.broke:
		case <-b.life.Done():
			return
		}
		if !b.embedded.health.Load().full.Load() {
			continue
		}
		for pause := firstTry; ; pause = min(2*pause, longestTry) {
			if !rest(b.life, pause) {
				return
			}
			if b.hasRoom() && b.restart() {
				break
			}
		}
	}
}

func (b *Broker) hasRoom() bool {
	if _, low := b.disk.refusal(); low {
		return false
	}
	return b.cfg.probe(b.cfg.Dir) == nil
}

// restart replaces the server. Without one, everybody waits for the next try.
func (b *Broker) restart() bool {
	b.embedded.end()
	if err := b.embedded.start(); err != nil {
		b.cfg.Logger.Error("embedded NATS server cannot be started anew", "error", err)
		return false
	}
	b.cfg.Logger.Info("the disk has room again: the embedded NATS server was started anew")
	return true
}

// probe writes and syncs a file as large as what the server may write next.
func probe(dir string) (err error) {
	f, err := os.CreateTemp(dir, "probe-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = byte(i) // a file of zeros may take no room
	}
	for n := 0; n < probeBytes; n += len(block) {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}
