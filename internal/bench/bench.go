// Package bench measures a node against baselines taken in the same run on
// the same machine, and prints ratios. It asserts nothing: a reader judges.
//
// Every row says what was done, how much of it a second, the baseline's
// figure, their ratio, the distribution of single operations, and the CPU time
// that the whole process (node, load and Go runtime) spent per event. Load and
// node share the machine.
package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/node"
)

// Config says what to measure and with what.
type Config struct {
	Drivers node.Drivers
	// Short makes every measurement brief, to keep it alive rather than to
	// learn something.
	Short bool
	// Only runs the rows whose id is listed; empty runs all.
	Only []string
	// Profile is a folder that takes a CPU profile and an allocation profile of
	// every measurement; empty takes none.
	Profile string
	// Command is the path of the headgate command, for what needs a process of
	// its own.
	Command string
	// Out takes progress lines.
	Out io.Writer
}

// Row is one figure.
type Row struct {
	ID       string  `json:"id"`
	Work     string  `json:"work"`
	Ours     float64 `json:"ours"`
	Baseline float64 `json:"baseline,omitempty"`
	Unit     string  `json:"unit"`
	Against  string  `json:"against,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	P50      float64 `json:"p50_us,omitempty"`
	P99      float64 `json:"p99_us,omitempty"`
	P999     float64 `json:"p999_us,omitempty"`
	CPU      float64 `json:"cpu_us_per_event,omitempty"`
	Note     string  `json:"note,omitempty"`
}

// Report is the outcome of a run.
type Report struct {
	Version    string  `json:"version"`
	Go         string  `json:"go"`
	CPUs       int     `json:"cpus"`
	Durability string  `json:"durability"`
	Fsync      Latency `json:"fsync_us"`
	Rows       []Row   `json:"rows"`
}

// Latency is a distribution in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

// run is one benchmark run.
type run struct {
	Config
	dir    string
	report Report
}

// Run measures everything and returns the report.
func Run(ctx context.Context, cfg Config, version string) (*Report, error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &run{Config: cfg, dir: dir, report: Report{Version: version, Go: runtime.Version(), CPUs: runtime.NumCPU()}}
	if r.report.Fsync, err = r.fsync(); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		ids []string
		fn  func(context.Context) error
	}{
		{[]string{"verdict-400B", "verdict-8KB", "verdict-real", "verdict-refused-400B", "verdict-refused-8KB"}, r.verdicts},
		{[]string{"verdict-avro", "verdict-refused-avro"}, r.avroVerdicts},
		{[]string{"single-1", "single-64"}, r.single},
		{[]string{"bulk-100", "bulk-1000"}, r.bulk},
		{[]string{"refusal-400B", "refusal-8KB"}, r.refusals},
		{[]string{"pull-1", "pull-100"}, r.pulls},
		{[]string{"handler"}, r.handler},
		{[]string{"flow-1", "flow-100"}, r.flow},
		{[]string{"route-1000"}, r.routes},
		{[]string{"causal-share"}, r.causality},
		{[]string{"start", "memory"}, r.stored},
		{[]string{"leases"}, r.leases},
		{[]string{"outbox-cost", "outbox-latency", "outbox-drain", "outbox-idle"}, r.outbox},
		{[]string{"outbox-sqlite-latency", "outbox-sqlite-drain"}, r.outboxSQLite},
	} {
		if len(cfg.Only) > 0 && !slices.ContainsFunc(m.ids, func(id string) bool { return slices.Contains(cfg.Only, id) }) {
			continue
		}
		fmt.Fprintf(cfg.Out, "measuring %v\n", m.ids)
		if err := r.profiled(m.ids[0], func() error { return m.fn(ctx) }); err != nil {
			return nil, fmt.Errorf("%v: %w", m.ids, err)
		}
	}
	return &r.report, nil
}

// long returns n, or a small part of it in a short run.
func (r *run) long(n int) int {
	if r.Short {
		return max(n/50, 20)
	}
	return n
}

func (r *run) add(row Row) {
	if row.Baseline > 0 {
		row.Ratio = row.Ours / row.Baseline
	}
	r.report.Rows = append(r.report.Rows, row)
}

// fsync measures what one durable append of 600 bytes costs on this disk.
func (r *run) fsync() (Latency, error) {
	f, err := os.CreateTemp(r.dir, "fsync")
	if err != nil {
		return Latency{}, err
	}
	defer f.Close()
	block := make([]byte, 600)
	took := make([]time.Duration, 0, 2000)
	for range r.long(2000) {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return Latency{}, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return Latency{}, err
		}
		took = append(took, time.Since(start))
	}
	return latency(took), nil
}

func latency(took []time.Duration) Latency {
	slices.Sort(took)
	at := func(q float64) float64 {
		if len(took) == 0 {
			return 0
		}
		return float64(took[min(int(q*float64(len(took))), len(took)-1)]) / float64(time.Microsecond)
	}
	return Latency{P50: at(.5), P99: at(.99), P999: at(.999)}
}

// usage is CPU time spent by this process so far.
func usage() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Write prints the report as a table.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintf(w, "headgate %s, %s, %d CPUs shared by node and load\ndurability: %s\nappend of 600 B + fdatasync: p50 %.0f µs, p99 %.0f µs, p99.9 %.0f µs\n\n",
		r.Version, r.Go, r.CPUs, r.Durability, r.Fsync.P50, r.Fsync.P99, r.Fsync.P999)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "id\twork\tours\tbaseline\tratio\tunit\tp50 µs\tp99 µs\tp99.9 µs\tCPU µs/event\t")
	for _, row := range r.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.ID, row.Work, num(row.Ours), num(row.Baseline), ratio(row.Ratio), row.Unit,
			num(row.P50), num(row.P99), num(row.P999), num(row.CPU))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, row := range r.Rows {
		if row.Against != "" {
			fmt.Fprintf(w, "%s: the baseline is %s.\n", row.ID, row.Against)
		}
		if row.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", row.ID, row.Note)
		}
	}
	return nil
}

func num(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func ratio(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f×", v)
}
