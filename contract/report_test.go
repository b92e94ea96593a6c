package contract

import (
	"testing"

	"github.com/headgate/headgate"
)

func checkReport(t *testing.T, payload []byte, v *headgate.Verdict) {}
