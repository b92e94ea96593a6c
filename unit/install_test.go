package unit_test

import (
	"testing"

	"github.com/headgate/headgate/inbox/inboxpgx"
)

func installInbox(t testing.TB, url string) error {
	return inboxpgx.Install(t.Context(), connect(t, url), inboxpgx.InstallOptions{})
}
