package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/condition"
	"github.com/spf13/cobra"
)

const (
	importLines = 1000    // events of one request
	importBytes = 4 << 20 // of one request
	importLine  = 8 << 20 // longest line
)

// importer publishes a file in requests of bounded size. After each request
// the number of lines that are done is written beside the file, so that a
// stopped import goes on where it was; a repeated line is a duplicate.
type importer struct {
	*app
	client   *client.Client
	file     string
	typeFrom *condition.Value
	source   string
	report   *os.File
	sum      importSum
	shown    time.Time
}

type importSum struct {
	File     string `json:"file"`
	Lines    int    `json:"lines"`
	Accepted int    `json:"accepted"`
	Refused  int    `json:"refused"`
	Resumed  int    `json:"resumed_at,omitempty"`
	Report   string `json:"report,omitempty"`
}

func (a *app) importCommand() *cobra.Command {
	im := &importer{app: a}
	var typeFrom string
	var restart bool
	cmd := &cobra.Command{
		Use: "import FILE.ndjson", Short: "Publish a file of events in bulk",
		Long: "Publish one event a line. With --type-from the lines are payloads, and the CEL expression (over data)\n" +
			"gives their types; each gets an id made of the file's name and the line's number.\n" +
			"Refused lines go to a report beside the file, FILE.refused.ndjson, with the reason. A stopped import resumes.",
		Example: "  headgate import events.ndjson\n  headgate import deliveries.ndjson --type-from '\"github.\" + data.event'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			im.file = args[0]
			if typeFrom != "" {
				v, err := condition.CompileValue(typeFrom)
				if err != nil {
					return usagef("--type-from: %w", err)
				}
				im.typeFrom = v
			}
			var err error
			if im.client, err = a.client(); err != nil {
				return err
			}
			return im.run(cmd.Context(), restart)
		},
	}
	f := cmd.Flags()
	f.StringVar(&typeFrom, "type-from", "", "CEL expression for the type; lines are then payloads")
	f.StringVar(&im.source, "source", "", "source of events made by --type-from; default: the file's name")
	f.BoolVar(&restart, "restart", false, "begin with the first line even if an import was stopped")
	return cmd
}

func (im *importer) progressFile() string { return im.file + ".progress" }

func (im *importer) run(ctx context.Context, restart bool) error {
	in, err := os.Open(im.file)
	if err != nil {
		return usageError{err}
	}
	defer in.Close()
	im.sum.File = im.file
	if !restart {
		im.sum.Resumed = im.doneBefore()
	}
	lines := bufio.NewReaderSize(in, 1<<20)
	for n := range im.sum.Resumed {
		if _, err := readImportLine(lines); err != nil {
			return headgate.NewError(headgate.CodeConflict, "%s has fewer lines than were imported before (%d): use --restart", im.file, n)
		}
	}
	im.sum.Lines = im.sum.Resumed
	if err := im.all(ctx, lines); err != nil {
		return err
	}
	if im.report != nil {
		if err := im.report.Close(); err != nil {
			return err
		}
	}
	if err := os.Remove(im.progressFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := im.print(im.sum, im.printSum); err != nil {
		return err
	}
	if im.sum.Refused > 0 {
		return headgate.NewError(headgate.CodeContractViolation, "%d of %d events were refused; see %s", im.sum.Refused, im.sum.Accepted+im.sum.Refused, im.sum.Report)
	}
	return nil
}

func (im *importer) printSum(w io.Writer) {
	if im.sum.Resumed > 0 {
		fmt.Fprintf(w, "resumed after line %d of an earlier import\n", im.sum.Resumed)
	}
	fmt.Fprintf(w, "%d lines: %d accepted, %d refused\n", im.sum.Lines-im.sum.Resumed, im.sum.Accepted, im.sum.Refused)
	im.next("headgate doctor")
}

// doneBefore returns the number of lines that a stopped import finished.
func (im *importer) doneBefore() int {
	n, err := strconv.Atoi(readLine(im.progressFile()))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (im *importer) all(ctx context.Context, lines *bufio.Reader) error {
	for {
		part, numbers, read, err := im.part(lines)
		if len(part) > 0 {
			if err := im.send(ctx, part, numbers); err != nil {
				return err
			}
		}
		im.sum.Lines += read
		if read > 0 {
			if err := os.WriteFile(im.progressFile(), []byte(strconv.Itoa(im.sum.Lines)+"\n"), 0o600); err != nil {
				return err
			}
			im.progress()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// progress prints a line every two seconds.
func (im *importer) progress() {
	if im.json || im.quiet || time.Since(im.shown) < 2*time.Second {
		return
	}
	im.shown = time.Now()
	fmt.Fprintf(im.err, "%d lines, %d refused\n", im.sum.Lines, im.sum.Refused)
}

// part reads the lines of one request. numbers has the line number of each
// event in it; read counts all lines, empty ones included.
func (im *importer) part(lines *bufio.Reader) (part [][]byte, numbers []int, read int, err error) {
	size := 0
	for len(part) < importLines && size < importBytes {
		line, err := readImportLine(lines)
		if err != nil {
			return part, numbers, read, err
		}
		read++
		number := im.sum.Lines + read
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		event := line
		if im.typeFrom != nil {
			if event, err = im.wrap(line, number); err != nil {
				if err := im.refuse(number, line, api.Refusal{Code: headgate.CodeBadEnvelope, Detail: err.Error()}); err != nil {
					return part, numbers, read, err
				}
				continue
			}
		}
		part, numbers, size = append(part, event), append(numbers, number), size+len(event)
	}
	return part, numbers, read, nil
}

// readImportLine returns one line without its end.
func readImportLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		frag, err := r.ReadSlice('\n')
		line = append(line, frag...)
		switch {
		case len(line) > importLine:
			return nil, headgate.NewError(headgate.CodeTooLarge, "a line is longer than %d bytes", importLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

// wrap makes an event of a payload.
func (im *importer) wrap(payload []byte, number int) ([]byte, error) {
	e := headgate.Event{Source: firstOf(im.source, im.file), ID: im.file + ":" + strconv.Itoa(number), Data: payload}
	typ, err := im.typeFrom.Eval(&e)
	if err != nil {
		return nil, fmt.Errorf("--type-from: %w", err)
	}
	e.Type = typ
	return headgate.AppendStructured(nil, &e), nil
}

func (im *importer) send(ctx context.Context, part [][]byte, numbers []int) error {
	body := append(bytes.Join(part, []byte("\n")), '\n')
	res, err := im.publish(ctx, body)
	if err != nil {
		return err
	}
	if len(res.Results) < len(part) {
		why := "the node stopped reading"
		if res.Stopped != nil {
			why = res.Stopped.Detail
		}
		return headgate.NewError(headgate.CodeUnavailable, "line %d and what follows were not imported: %s; run the command again", numbers[len(res.Results)], why)
	}
	im.sum.Accepted += res.Accepted
	for i := range res.Results {
		r := &res.Results[i]
		if r.Status == 202 {
			continue
		}
		if r.Retryable == headgate.RetryLater {
			return headgate.NewError(r.Code, "line %d: %s; run the command again to go on", numbers[i], r.Detail)
		}
		if err := im.refuse(numbers[i], part[i], r.Refusal); err != nil {
			return err
		}
	}
	return nil
}

// publish sends one request, waiting as long as the node asks for.
func (im *importer) publish(ctx context.Context, body []byte) (api.Results, error) {
	for attempt := 0; ; attempt++ {
		res, err := im.client.PublishLines(ctx, bytes.NewReader(body))
		e := headgate.AsError(err)
		if e == nil || e.Info().Retry != headgate.RetryLater || attempt == 8 {
			return res, err
		}
		if !pause(ctx, max(e.RetryAfter, 250*time.Millisecond<<attempt)) {
			return res, err
		}
	}
}

// refuse writes one line of the report.
func (im *importer) refuse(number int, line []byte, r api.Refusal) error {
	im.sum.Refused++
	if im.report == nil {
		im.sum.Report = strings.TrimSuffix(im.file, ".ndjson") + ".refused.ndjson"
		mode := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		if im.sum.Resumed > 0 {
			mode = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		}
		f, err := os.OpenFile(im.sum.Report, mode, 0o600)
		if err != nil {
			return err
		}
		im.report = f
	}
	enc := json.NewEncoder(im.report)
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Line int `json:"line"`
		api.Refusal
		Text string `json:"text"`
	}{number, r, string(line)})
}
