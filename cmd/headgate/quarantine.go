package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/spf13/cobra"
)

func (a *app) quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "quarantine", Aliases: []string{"q"}, Short: "Refused, extinguished, expired and parked events"}
	cmd.AddCommand(a.quarantineList(), a.quarantineGroups(), a.quarantineShow(), a.quarantineExport())
	return cmd
}

// quarantineFlags adds the flags of a filter to a command.
func quarantineFlags(cmd *cobra.Command) *client.QuarantineFilter {
	f := &client.QuarantineFilter{}
	fl := cmd.Flags()
	fl.StringVar(&f.Kind, "kind", "", "refused, extinguished, parked, expired or mended")
	fl.StringVar(&f.Reason, "reason", "", "reason")
	fl.StringVar(&f.Type, "type", "", "event type")
	fl.StringVar(&f.Subscription, "subscription", "", "subscription")
	fl.StringVar(&f.Principal, "principal", "", "who published")
	fl.StringVar(&f.Root, "root", "", "id of the root")
	fl.StringVar(&f.ID, "id", "", "event id")
	fl.StringVar(&f.Fingerprint, "group", "", "fingerprint of a group")
	return f
}

func (a *app) quarantineList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "ls", Short: "List records, newest first", Args: cobra.NoArgs}
	f := quarantineFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "records to list")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		page, err := c.Quarantine(cmd.Context(), *f, client.Page{Limit: limit})
		if err != nil {
			return err
		}
		return a.print(page, func(w io.Writer) {
			rows := make([][]string, len(page.Records))
			for i, r := range page.Records {
				rows[i] = []string{r.QID, r.Kind, r.Reason, firstOf(r.Type, "-"), firstOf(r.Subscription, r.Principal, "-"), when(r.Created), clipTo(r.Message, 60)}
			}
			table(w, "QID KIND REASON TYPE WHERE CREATED MESSAGE", rows)
			if len(page.Records) > 0 {
				a.next("headgate quarantine show %s", page.Records[0].QID)
			}
		})
	}
	return cmd
}

func (a *app) quarantineGroups() *cobra.Command {
	cmd := &cobra.Command{Use: "groups", Short: "Group records by fault, largest first", Args: cobra.NoArgs}
	f := quarantineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		groups, err := c.QuarantineGroups(cmd.Context(), *f)
		if err != nil {
			return err
		}
		return a.print(groups, func(w io.Writer) {
			rows := make([][]string, len(groups.Groups))
			for i, g := range groups.Groups {
				rows[i] = []string{fmt.Sprint(g.Count), g.Kind, g.Reason, firstOf(g.Type, "-"), when(g.Last), g.Fingerprint, clipTo(g.Message, 60)}
			}
			table(w, "COUNT KIND REASON TYPE LAST GROUP MESSAGE", rows)
			for _, o := range groups.Overflow {
				fmt.Fprintf(w, "not kept, only counted: %d × %s by %s (%s)\n", o.Count, o.Reason, plain(o.Principal), plain(o.Type))
			}
			if len(groups.Groups) > 0 {
				a.next("headgate quarantine show %s", groups.Groups[0].Sample)
			}
		})
	}
	return cmd
}

func (a *app) quarantineShow() *cobra.Command {
	return &cobra.Command{
		Use: "show QID", Short: "Show one record with everything known about it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			r, err := c.Quarantined(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) { a.printQuarantined(w, &r) })
		},
	}
}

func (a *app) printQuarantined(w io.Writer, r *api.QuarantinedWhole) {
	for _, f := range [][2]string{
		{"qid", r.QID},
		{"kind", r.Kind},
		{"reason", r.Reason},
		{"state", r.State},
		{"message", r.Message},
		{"event", r.ID},
		{"type", r.Type},
		{"source", r.Source},
		{"principal", r.Principal},
		{"root", r.RootID},
		{"cause", r.Cause},
		{"subscription", r.Subscription},
		{"stream", r.Stream},
		{"position", r.Position},
		{"group", r.Fingerprint},
		{"created", when(r.Created)},
		{"expires", when(r.Expires)},
		{"body sha256", r.BodySHA256},
	} {
		if f[1] != "" {
			fmt.Fprintf(w, "%-13s %s\n", f[0], plain(f[1]))
		}
	}
	var detail bytes.Buffer
	if len(r.Detail) > 0 && json.Indent(&detail, r.Detail, "", "  ") == nil {
		fmt.Fprintf(w, "detail\n%s\n", plainLines(detail.String()))
	}
	printBody(w, r)
	if r.ID != "" && r.Kind != "refused" {
		a.next("headgate explain %s", r.ID)
	}
}

// maxDumped is how much of a payload that is no text is shown, in bytes.
const maxDumped = 512

// printBody shows a payload: as text, in Avro as the JSON that it says, and
// otherwise by its first bytes with their offsets, as reports name them.
func printBody(w io.Writer, r *api.QuarantinedWhole) {
	switch {
	case r.Body != "":
		fmt.Fprintf(w, "body\n%s\n", plainLines(r.Body))
	case r.BodyJSON != "":
		fmt.Fprintf(w, "body (Avro, %d bytes; as JSON by %s; --json has the bytes)\n%s", len(r.BodyBase64), plain(r.BodyContract), plainLines(r.BodyJSON))
		if r.BodyJSONClipped {
			fmt.Fprint(w, "…")
		}
		fmt.Fprintln(w)
	case len(r.BodyBase64) > 0:
		what := "not UTF-8"
		if headgate.IsAvro(r.ContentType) {
			what = "no Avro value of its contract, as far as is known now"
		}
		fmt.Fprintf(w, "body (%s; %d bytes, --json has them)\n%s", what, len(r.BodyBase64), hex.Dump(r.BodyBase64[:min(len(r.BodyBase64), maxDumped)]))
		if len(r.BodyBase64) > maxDumped {
			fmt.Fprintln(w, "…")
		}
	}
}

func (a *app) quarantineExport() *cobra.Command {
	cmd := &cobra.Command{Use: "export", Short: "Write whole records as NDJSON, newest first", Args: cobra.NoArgs}
	f := quarantineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return pages(func(p client.Page) (string, error) {
			page, err := c.Quarantine(cmd.Context(), *f, p)
			if err != nil {
				return "", err
			}
			for _, rec := range page.Records {
				whole, err := c.Quarantined(cmd.Context(), rec.QID)
				if err != nil {
					return "", err
				}
				if err := enc.Encode(whole); err != nil {
					return "", err
				}
			}
			return page.Next, nil
		})
	}
	return cmd
}

// clipTo shortens text to n runes.
func clipTo(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// plainLines is plain for text of several lines.
func plainLines(s string) string {
	var b bytes.Buffer
	for line := range bytes.Lines([]byte(s)) {
		b.WriteString(plain(string(bytes.TrimRight(line, "\r\n"))))
		b.WriteByte('\n')
	}
	return string(bytes.TrimRight(b.Bytes(), "\n"))
}
