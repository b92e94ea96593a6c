package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/index"
	"github.com/headgate/headgate/store"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) explainCommand() *cobra.Command {
	data := ""
	cmd := &cobra.Command{
		Use: "explain EVENT_ID", Short: "Why an event went where it went", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			x, err := c.Reading(data).Explain(cmd.Context(), args[0], true)
			if err != nil {
				return err
			}
			return a.print(x, func(w io.Writer) { a.printExplanation(w, &x) })
		},
	}
	dataFlag(cmd, &data)
	return cmd
}

// maxShownData bounds what is shown of the data of one event, in characters.
const maxShownData = 1000

func (a *app) printExplanation(w io.Writer, x *api.Explanation) {
	if !x.Admitted {
		a.printRefusals(w, x.Quarantine)
		return
	}
	e := &x.Event
	fmt.Fprintf(w, "%s %s from %s\n", plain(e.Type), plain(e.ID), plain(e.Source))
	fmt.Fprintf(w, "  admitted   %s by %s (%s), at %s/%s\n", when(e.Recorded), plain(e.Principal), e.Origin, e.Stream, e.Position)
	fmt.Fprintf(w, "  contract   passed %s\n", plain(e.Contract))
	if full, err := a.decode(e.Event); err == nil { // else retention removed it
		if fence := full.Event.Header.Fence; fence != "" {
			fmt.Fprintf(w, "  fence      %s\n", plain(fence))
		}
		printData(w, full.Event)
	}
	if e.Mended != "" {
		fmt.Fprintf(w, "  mended     the payload was mended as its contract asks; the original is in quarantine, %s\n", plain(e.Mended))
	}
	fmt.Fprintf(w, "  cause      ttl=%d hop=%d root=%s", e.TTL, e.Hop, plain(e.RootID))
	if len(e.Causes) > 0 {
		fmt.Fprintf(w, " caused by %s", plain(strings.Join(e.Causes, ", ")))
	}
	fmt.Fprintln(w)
	if len(x.Subscriptions) == 0 {
		fmt.Fprintln(w, "  no subscription exists")
	}
	for i := range x.Subscriptions {
		printState(w, &x.Subscriptions[i])
	}
	for i := range x.Others {
		o := &x.Others[i]
		fmt.Fprintf(w, "  another event has this id: %s from %s, at %s/%s\n", plain(o.Type), plain(o.Source), o.Stream, o.Position)
	}
	a.next("headgate tree %s", e.RootID)
}

// printData shows the data of an event: text as it is, Avro that was not asked
// for as JSON, or that no contract reads, by its first bytes.
func printData(w io.Writer, e *headgate.Event) {
	switch {
	case len(e.Data) == 0:
	case headgate.IsAvro(e.DataContentType) || !utf8.Valid(e.Data):
		fmt.Fprintf(w, "  data       %s, %d bytes: %x", plain(e.DataContentType), len(e.Data), e.Data[:min(len(e.Data), 32)])
		if len(e.Data) > 32 {
			fmt.Fprint(w, "…")
		}
		fmt.Fprintln(w)
	default:
		fmt.Fprintf(w, "  data       %s\n", plain(clipTo(string(e.Data), maxShownData)))
	}
}

// printRefusals explains an event that was never admitted.
func (a *app) printRefusals(w io.Writer, records []api.Quarantined) {
	fmt.Fprintln(w, "never admitted")
	for i := range records {
		r := &records[i]
		fmt.Fprintf(w, "  %-10s %s %s by %s: %s: %s\n", r.Kind, when(r.Created), plain(r.Type), plain(r.Principal), plain(r.Reason), plain(clipTo(r.Message, 120)))
	}
	if len(records) > 0 {
		a.next("headgate quarantine show %s", records[0].QID)
	}
}

func printState(w io.Writer, s *api.State) {
	fmt.Fprintf(w, "  %-10s %s: %s\n", s.State, plain(s.Subscription), plain(s.Why))
	if !s.Due.IsZero() {
		fmt.Fprintf(w, "             next attempt %s\n", when(s.Due))
	}
	for _, h := range s.History {
		fmt.Fprintf(w, "             attempt %d at %s", h.N, when(h.Start))
		if h.Principal != "" {
			fmt.Fprintf(w, " by %s", plain(h.Principal))
		}
		fmt.Fprintf(w, ": %s\n", plain(strings.TrimSpace(h.Outcome+" "+clipTo(h.Error, 120))))
	}
	if s.Quarantine != "" {
		fmt.Fprintf(w, "             quarantine %s\n", s.Quarantine)
	}
}

func (a *app) treeCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "tree ROOT_ID", Short: "Causal tree of a root: TTL, and where it was cut", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			t, err := c.Tree(cmd.Context(), args[0], limit, true)
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) { _ = writeTree(w, &t) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 500, "events to show")
	return cmd
}

// writeTree draws a tree as wide as the terminal.
func writeTree(w io.Writer, t *api.Tree) error {
	width := 120
	if f, ok := w.(*os.File); ok {
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = cols
		}
	}
	drawn := index.Tree{
		Root: treeNode(t.Root), Events: t.Events, Depth: t.Depth, Lag: uint64(max(t.Lag, 0)), Shown: t.Shown, Cuts: t.Cuts,
		Gas: causal.Account{Total: t.Gas.Total, Debited: t.Gas.Debited, Local: t.Gas.Local, Known: t.Gas.Known},
	}
	return drawn.WriteText(w, width, asciiOnly())
}

// asciiOnly reports whether the locale has no UTF-8.
func asciiOnly() bool {
	locale := firstOf(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	return locale != "" && !strings.Contains(strings.ToUpper(strings.ReplaceAll(locale, "-", "")), "UTF8")
}

func treeNode(n *api.Node) *index.Node {
	if n == nil {
		return nil
	}
	pos, _ := headgate.ParsePosition(n.Position) // empty for hidden events
	out := &index.Node{IndexRow: store.IndexRow{
		ID: n.ID, Type: n.Type, Subject: n.Subject, Principal: n.Principal, Stream: n.Stream, Position: pos,
		TTL: n.TTL, Hop: n.Hop, Recorded: n.Recorded,
	}}
	if n.Hidden {
		out.ID, out.Type = "(hidden)", "(hidden)"
	}
	for _, c := range n.Cuts {
		out.Cuts = append(out.Cuts, index.Cut{Reason: c.Reason, Type: c.Type, Principal: c.Principal, Count: c.Count, QID: c.Quarantine})
	}
	for _, c := range n.Children {
		out.Children = append(out.Children, treeNode(c))
	}
	return out
}

func (a *app) doctorCommand() *cobra.Command {
	var fencing string
	cmd := &cobra.Command{
		Use: "doctor", Short: "What the node promises, whether its counts add up, and what is unsafe", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fencing != "" {
				return a.diagnoseFencing(cmd.Context(), fencing)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			asked := time.Now()
			d, err := c.Doctor(cmd.Context())
			if err != nil {
				return err
			}
			drift := clockDrift(asked, time.Now(), d.Time)
			if err := a.print(d, func(w io.Writer) { a.printDoctor(w, &d, drift) }); err != nil {
				return err
			}
			if !d.OK {
				return headgate.NewError(headgate.CodeConflict, "the node has problems")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&fencing, "fencing", "", "prove the guard on this PostgreSQL database (postgres://… or env:NAME) instead, in scratch schemas")
	return cmd
}

// clockDrift is how far the node's clock is from ours at least; 0 when the
// round trip cannot tell.
func clockDrift(asked, answered, node time.Time) time.Duration {
	switch {
	case node.Before(asked):
		return node.Sub(asked)
	case node.After(answered):
		return node.Sub(answered)
	}
	return 0
}

func (a *app) printDoctor(w io.Writer, d *api.Doctor, drift time.Duration) {
	fmt.Fprintf(w, "headgate %s\n\ndurability: %s\n  events: %s\n  state:  %s (%s, schema %d)\n  dedupe: %s\n", d.Version, d.Durability.Mode,
		d.Durability.Streams, d.Durability.State, d.Durability.Store, d.Durability.Schema, d.Durability.Dedupe)
	if drift != 0 {
		fmt.Fprintf(w, "  clock:  the node is %s off this machine\n", drift.Round(time.Millisecond))
	}
	fmt.Fprintln(w)
	rows := make([][]string, len(d.Streams))
	for i, s := range d.Streams {
		rows[i] = []string{s.Stream, fmt.Sprint(s.Partitions), fmt.Sprint(s.Stored), fmt.Sprint(s.Kept), fmt.Sprint(s.Bytes)}
	}
	table(w, "STREAM PARTITIONS STORED KEPT BYTES", rows)
	fmt.Fprintln(w)
	rows = make([][]string, len(d.Conservation))
	for i, b := range d.Conservation {
		law := "holds"
		if !b.Holds {
			law = "BROKEN: " + b.Detail
		}
		rows[i] = []string{
			b.Subscription, fmt.Sprint(b.Accepted), fmt.Sprint(b.Pending), fmt.Sprint(b.InFlight), fmt.Sprint(b.Settled), fmt.Sprint(b.Unmatched),
			fmt.Sprint(b.Parked), fmt.Sprint(b.Extinguished), fmt.Sprint(b.Expired), fmt.Sprint(b.Discarded), law,
		}
	}
	table(w, "SUBSCRIPTION ACCEPTED PENDING IN-FLIGHT SETTLED UNMATCHED PARKED EXTINGUISHED EXPIRED DISCARDED LAW", rows)
	for _, p := range d.Problems {
		fmt.Fprintf(w, "\n%s: %s\n", p.Severity, plain(p.What))
		if p.Fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", plain(p.Fix))
		}
	}
	if len(d.Problems) == 0 {
		fmt.Fprintln(w, "\nnothing is wrong or unsafe")
	}
}
