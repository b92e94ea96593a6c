package sqliterelay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/powerloss"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
)

// powerVariable makes a process the victim of the power cut; it holds "synced"
// or "unsynced" and the path.
const powerVariable = "HEADGATE_SQLITERELAY_POWER"

// victim writes with synchronous = NORMAL, which waits for no disk, and prints
// the id of each row that the relay may publish. It confirms nothing: the
// cursor would sync the log, too.
func victim(ctx context.Context, mode, path string) error {
	db, err := connect(path, "synchronous(normal)")
	if err != nil {
		return err
	}
	src, err := New(Config{Path: path, Connect: connector(path), unsynced: mode == "unsynced"})
	if err != nil {
		return err
	}
	s, err := src.Open(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		for {
			_, err := db.ExecContext(ctx, `INSERT INTO headgate_outbox (type, data) VALUES ('order.placed', hex(randomblob(200)))`)
			if err != nil {
				failed <- err
				return
			}
			src.Wake()
		}
	}()
	for {
		changes, err := s.Receive(ctx)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Kind == relay.Insert {
				fmt.Println("published", c.Row.Event.ID)
			}
		}
		select {
		case err := <-failed:
			return err
		default:
		}
	}
}

// cutPower runs the victim until it published a number of rows, cuts the power,
// and returns how many of these the database does not have.
func cutPower(t *testing.T, mode string, most int) (published, lost int) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	path := filepath.Join(dir, "data", "app.db")
	db, err := connect(path)
	must(t, err)
	must(t, Install(t.Context(), db))
	must(t, db.Close())
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), powerVariable+"="+mode+":"+path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ids []string
	trace, err := powerloss.Record(ctx, cmd, dir, func(line string) bool {
		if id, ok := strings.CutPrefix(line, "published "); ok {
			ids = append(ids, id)
		}
		return len(ids) < most
	})
	must(t, err)
	report, err := trace.Cut(powerloss.Options{LoseUnsyncedNames: true})
	must(t, err)
	t.Logf("%d rows were published, %d syncs; the cut took %+v", len(ids), trace.Syncs, report)
	left := open(t, path)
	if check := value[string](t, left, `PRAGMA integrity_check`); check != "ok" {
		t.Fatal(check)
	}
	for _, id := range ids {
		if value[int](t, left, `SELECT count(*) FROM headgate_outbox_rows WHERE id = ?`, id) != 1 {
			lost++
		}
	}
	return len(ids), lost
}

// Trap 35, second part: a writer with synchronous = NORMAL may lose a commit to
// a power cut, but none that was published before.
func TestTrap35PublishedCommitsSurvivePowerCuts(t *testing.T) {
	powerloss.Require(t)
	times, most := 1, 100
	if relaytest.Campaign() {
		times = 50
	}
	for i := range times {
		if n, lost := cutPower(t, "synced", most+i*20); lost > 0 {
			t.Errorf("%d of %d published commits are undone", lost, n)
		}
	}
	// A relay that does not sync must be caught.
	if n, lost := cutPower(t, "unsynced", most); lost == 0 {
		t.Errorf("none of %d commits that were published without a sync is undone: the harness sees nothing", n)
	}
}
