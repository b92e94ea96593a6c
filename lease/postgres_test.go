package lease

import (
	"os"
	"testing"
)

// TestOnPostgres runs the semantics on the other store, too.
func TestOnPostgres(t *testing.T) {
	if os.Getenv("HEADGATE_TEST_POSTGRES") == "" {
		if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
			t.Fatal("HEADGATE_TEST_POSTGRES is not set")
		}
		t.Skip("HEADGATE_TEST_POSTGRES is not set")
	}
	t.Setenv(postgresTests, "1")
	for name, test := range map[string]func(*testing.T){
		"Guard": TestGuard, "AcquireIsExclusive": TestAcquireIsExclusive, "RenewNeedsTheWholeFence": TestRenewNeedsTheWholeFence,
		"RequestIDs": TestRequestIDs, "Several": TestSeveralAreGrantedTogetherOrNot, "CrossedSets": TestCrossedSetsDoNotDeadlock,
		"Revoke": TestRevoke, "MaxHold": TestMaxHold, "ClockSteps": TestClockSteps, "LostRows": TestLostRows, "KeysRotate": TestKeysRotate,
		"TwoNodes": TestTwoNodes, "GuardIsPartOfTheWrite": TestGuardIsPartOfTheWrite, "ListsWhatIsHeld": TestListsWhatIsHeld, "Histories": TestHistories,
	} {
		t.Run(name, test)
	}
}
