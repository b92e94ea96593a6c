package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/client"
)

// stored measures start-up and memory of a process of its own that holds many
// stored events.
func (r *run) stored(ctx context.Context) error {
	events := 1_000_000
	if r.Short {
		events = 20_000
	}
	data := filepath.Join(r.dir, "stored")
	empty, _, err := r.once(ctx, data+"-empty", nil)
	if err != nil {
		return err
	}
	_, _, err = r.once(ctx, data, func(c *client.Client) error { return fill(ctx, c, events) })
	if err != nil {
		return err
	}
	start, rss, err := r.once(ctx, data, nil)
	if err != nil {
		return err
	}
	r.add(Row{
		ID: "start", Work: fmt.Sprintf("start until ready, %d events of 400 B stored", events), Ours: start.Seconds() * 1000, Baseline: empty.Seconds() * 1000, Unit: "ms",
		Against: "the same with an empty data folder",
	})
	r.add(Row{ID: "memory", Work: fmt.Sprintf("resident memory after start, %d events stored", events), Ours: float64(rss) / (1 << 20), Unit: "MiB"})
	return nil
}

func fill(ctx context.Context, c *client.Client, events int) error {
	if _, _, err := c.PutContract(ctx, "order.placed", []byte(benchSchema)); err != nil {
		return err
	}
	for i := 0; i < events; {
		var b bytes.Buffer
		for range min(10_000, events-i) {
			b.Write(event(i, 400, ""))
			b.WriteByte('\n')
			i++
		}
		res, err := c.PublishLines(ctx, &b)
		if err != nil {
			return err
		}
		if res.Refused > 0 {
			return fmt.Errorf("%d events were refused", res.Refused)
		}
	}
	return nil
}

// once starts the command on a data folder, and returns how long it took to be
// ready and its resident memory then. With fn, that runs before the node stops.
func (r *run) once(ctx context.Context, data string, fn func(*client.Client) error) (ready time.Duration, rss int64, err error) {
	begin := time.Now()
	cmd := exec.CommandContext(ctx, r.Command, "dev", "--json", "--data", data, "--listen", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an ended process shows in Wait
		err = errors.Join(err, cmd.Wait())
	}()
	var banner struct{ URL, Token string }
	if err := json.NewDecoder(out).Decode(&banner); err != nil {
		return 0, 0, err
	}
	c, err := client.New(client.Config{URL: banner.URL, Token: banner.Token})
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	for c.Ready(ctx) != nil {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
	ready = time.Since(begin)
	if fn != nil {
		if err := fn(c); err != nil {
			return 0, 0, err
		}
	}
	rss, err = resident(cmd.Process.Pid)
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return ready, rss, err
}

// resident reads the resident memory of a process, in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}
