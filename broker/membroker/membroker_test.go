package membroker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
	"github.com/headgate/headgate/broker/membroker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		Open: func(_ testing.TB, _ string, o brokertest.Options) broker.Broker {
			return membroker.New(membroker.Config{
				MaxEventBytes: o.MaxEventBytes, DedupeWindow: o.DedupeWindow, DedupeIDs: o.DedupeIDs, Now: o.Now,
			})
		},
	})
}
