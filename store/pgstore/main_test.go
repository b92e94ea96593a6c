package pgstore

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a logger for faults that a test provokes.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
