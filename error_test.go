package headgate_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestTheTableIsClosed: every code that is declared has exactly one row, and
// every row answers every question.
func TestTheTableIsClosed(t *testing.T) {
	src, err := os.ReadFile("errorcodes.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+\s+Code = "([a-z0-9_]+)"$`).FindAllSubmatch(src, -1) {
		declared = append(declared, string(m[1]))
	}
	var rows []string
	for _, c := range headgate.Codes() {
		rows = append(rows, string(c.Code))
		if c.Status != 499 && http.StatusText(c.Status) == "" || c.Status < 400 {
			t.Errorf("%s: %d is no status of an error", c.Code, c.Status)
		}
		if !slices.Contains([]headgate.Outcome{headgate.NotApplied, headgate.Unknown, headgate.Applied}, c.Outcome) {
			t.Errorf("%s: outcome %q", c.Code, c.Outcome)
		}
		if !slices.Contains([]headgate.Retry{headgate.RetryNever, headgate.RetryAfterFix, headgate.RetryLater}, c.Retry) {
			t.Errorf("%s: retry %q", c.Code, c.Retry)
		}
		if c.Title == "" || strings.HasSuffix(c.Title, ".") || !strings.HasSuffix(c.Fix, ".") {
			t.Errorf("%s: title %q, fix %q", c.Code, c.Title, c.Fix)
		}
		if c.Outcome == headgate.Unknown && c.Retry == headgate.RetryNever {
			t.Errorf("%s: nobody can find out what happened", c.Code)
		}
		if headgate.LookupCode(c.Code) != c {
			t.Errorf("%s: LookupCode gives another row", c.Code)
		}
	}
	slices.Sort(declared)
	sorted := slices.Sorted(slices.Values(rows))
	if len(declared) < 40 || !slices.Equal(declared, sorted) {
		t.Errorf("declared %v\nrows     %v", declared, sorted)
	}
	if len(slices.Compact(sorted)) != len(rows) {
		t.Error("a code has two rows")
	}
	headgate.Codes()[0].Title = "changed"
	if headgate.Codes()[0].Title == "changed" {
		t.Error("a caller can change the table")
	}
}

func TestTheTableOfViolationsIsClosed(t *testing.T) {
	src, err := os.ReadFile("verdict.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared, rows []string
	for _, m := range regexp.MustCompile(`(?m)^\tViolation\w+\s+ViolationCode = "([a-z0-9_]+)"$`).FindAllSubmatch(src, -1) {
		declared = append(declared, string(m[1]))
	}
	for _, v := range headgate.ViolationCodes() {
		rows = append(rows, string(v.Code))
		if v.Title == "" || strings.HasSuffix(v.Title, ".") {
			t.Errorf("%s: title %q", v.Code, v.Title)
		}
	}
	if len(declared) < 20 || !slices.Equal(declared, rows) {
		t.Errorf("declared %v\nrows     %v", declared, rows)
	}
}

func TestErrors(t *testing.T) {
	plain := &headgate.Error{Code: headgate.CodeLoop}
	detailed := &headgate.Error{Code: headgate.CodeLoop, Detail: "a -> b -> a"}
	wrapped := fmt.Errorf("publish: %w", detailed)
	if !errors.Is(wrapped, plain) || errors.Is(wrapped, &headgate.Error{Code: headgate.CodeExpired}) || errors.Is(plain, detailed) {
		t.Error("errors.Is does not test by code")
	}
	if plain.Error() != "loop" || detailed.Error() != "loop: a -> b -> a" {
		t.Errorf("texts %q, %q", plain, detailed)
	}
	if headgate.CodeOf(nil) != "" || headgate.CodeOf(io.EOF) != headgate.CodeInternal || headgate.CodeOf(wrapped) != headgate.CodeLoop {
		t.Error("CodeOf is wrong")
	}
	if headgate.AsError(io.EOF) != nil || headgate.AsError(nil) != nil || headgate.AsError(wrapped) != detailed {
		t.Error("AsError is wrong")
	}
	cause := headgate.NewError(headgate.CodeUnavailable, "store: %v", io.ErrClosedPipe)
	if !errors.Is(cause, io.ErrClosedPipe) || cause.Detail != "store: "+io.ErrClosedPipe.Error() {
		t.Errorf("the cause is lost: %v", cause)
	}
	info := (&headgate.Error{Code: headgate.CodeNotDurable, Outcome: headgate.Applied, Fix: "Wait."}).Info()
	if info.Outcome != headgate.Applied || info.Fix != "Wait." || info.Status != 503 {
		t.Errorf("overrides are lost: %+v", info)
	}
	if info := (&headgate.Error{Code: "unheard-of"}).Info(); info.Code != headgate.CodeInternal || info.Status != 500 {
		t.Errorf("an unknown code is %+v", info)
	}
}
