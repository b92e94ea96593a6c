package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/spf13/cobra"
)

func (a *app) tailCommand() *cobra.Command {
	var opts client.TailOpts
	data := ""
	cmd := &cobra.Command{
		Use:   "tail [TYPE…]",
		Short: "Watch events live, without consuming them",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			opts.Types = args
			return a.tail(cmd.Context(), c.Reading(data), opts)
		},
	}
	dataFlag(cmd, &data)
	cmd.Flags().StringVar(&opts.From, "from", "", "now (default) or beginning")
	return cmd
}

// dataFlag adds the encoding in which events are read. At a terminal Avro is of
// no use.
func dataFlag(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", "json", "encoding of the data of Avro contracts: json, avro, or empty for the data as it was sent")
}

// tail prints live events until ctx ends. A broken stream is opened again
// where it broke.
func (a *app) tail(ctx context.Context, c *client.Client, opts client.TailOpts) error {
	for first := true; ; first = false {
		err := a.tailOnce(ctx, c, &opts)
		code := headgate.CodeOf(err)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, io.EOF) && (first && opts.Cursor == "" || code != headgate.CodeUnavailable) {
			return err
		}
		fmt.Fprintln(a.err, "the stream broke off; connecting again")
		if !pause(ctx, time.Second) {
			return nil
		}
	}
}

func (a *app) tailOnce(ctx context.Context, c *client.Client, opts *client.TailOpts) error {
	t, err := c.Tail(ctx, *opts)
	if err != nil {
		return err
	}
	defer t.Close()
	for {
		m, err := t.Next()
		if err != nil {
			return err
		}
		opts.Cursor = t.Cursor()
		switch {
		case m.Gap != nil:
			fmt.Fprintf(a.err, "gap: %d events of %s are missing (%s to %s)\n", m.Gap.Missing, m.Gap.Stream, m.Gap.From, m.Gap.To)
		case a.json:
			fmt.Fprintf(a.out, "%s\n", safeJSON(m.Event.Event))
		default:
			a.printEvent(m.Event.Stream+"/"+m.Event.Position, m.Event.Event)
		}
	}
}

// printEvent prints one event as one line for people.
func (a *app) printEvent(at string, raw []byte) {
	e, err := a.decode(raw)
	if err != nil {
		fmt.Fprintf(a.out, "%s (unreadable: %s)\n", at, plain(err.Error()))
		return
	}
	data := string(e.Event.Data)
	if len(data) > 200 {
		data = data[:200] + "…"
	}
	by := plain(e.Event.Header.Principal)
	if fence := e.Event.Header.Fence; fence != "" {
		by += " under " + plain(fence)
	}
	fmt.Fprintf(a.out, "%s  %s  %s  %s  ttl=%d hop=%d by %s  %s\n", when(e.Event.Header.RecordedTime), at,
		plain(e.Event.Type), plain(e.Event.ID), e.Event.Header.TTL, e.Event.Header.Hop, by, plain(data))
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// decode reads an event that the node delivered, header included.
func (a *app) decode(raw []byte) (headgate.Decoded, error) {
	d := headgate.Decoder{Trusted: true, MaxEvent: maxArgument}
	return d.Structured(raw)
}
