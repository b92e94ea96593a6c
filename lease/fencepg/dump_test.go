package fencepg_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// A dump that is restored is fenced as its database was. Left out of it, the
// rights of everybody are missing: then nobody writes until fencing is installed.
func TestDumpsFailClosed(t *testing.T) {
	ctx := t.Context()
	for name, options := range map[string][]string{
		"whole": {"--disable-triggers"}, "no rights": {"--no-acl", "--disable-triggers"}, "no rights, no owners": {"--no-acl", "--no-owner", "--disable-triggers"},
	} {
		t.Run(name, func(t *testing.T) {
			role := fmt.Sprintf("writer_%d", time.Now().UnixNano())
			pgtest.Exec(t, pgtest.URL(t), "CREATE ROLE "+role+" LOGIN")
			t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), "DROP ROLE "+role) })
			old, from := sealed(t, role)
			t.Cleanup(func() { pgtest.Exec(t, from, "DROP OWNED BY "+role) })
			rights := "GRANT ALL ON public.tickets TO " + role + "; GRANT USAGE ON SCHEMA public TO " + role
			pgtest.Exec(t, from, rights)
			first := grant("t/1", 10)
			want(t, "seal", new(fencepg.DB).Seal(ctx, old, first), "")
			to := newDatabase(t)
			pgtest.Copy(t, from, to, options...)
			t.Cleanup(func() { pgtest.Exec(t, to, "DROP OWNED BY "+role) })
			left := slices.Contains(options, "--no-acl")
			if left { // what any administrator would give again
				pgtest.Exec(t, to, rights)
			}
			app, admin := connect(t, strings.Replace(to, "headgate@", role+"@", 1)), connect(t, to)
			const insert = "INSERT INTO public.tickets VALUES (1, '1')"
			write := func(f fence.Fence) error {
				return fencepg.Tx(ctx, app, f, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insert)
					return err
				})
			}
			unfenced := func(code headgate.Code) {
				t.Helper()
				_, err := app.Exec(ctx, insert)
				want(t, "without a fence", fencepg.Error(err), code)
			}
			if left {
				if err := write(first); err == nil {
					t.Error("a write passes a guard whose rights are missing")
				}
				if _, err := app.Exec(ctx, insert); err == nil {
					t.Error("a write without a fence passes")
				}
				conn, err := admin.Acquire(ctx)
				if err != nil {
					t.Fatal(err)
				}
				err = fencepg.Install(ctx, conn.Conn(), fencepg.Config{Grant: []string{role}})
				conn.Release()
				if err != nil {
					t.Fatal(err)
				}
			}
			unfenced(headgate.CodeFenceMissing)
			want(t, "its own", write(first), "")
			second := grant("t/1", 11)
			want(t, "seal", new(fencepg.DB).Seal(ctx, admin, second), "")
			want(t, "superseded", write(first), headgate.CodeStaleFence)
			want(t, "another's", write(grant("t/2", 11)), headgate.CodeInvalidArgument)
			want(t, "the next", write(second), "")
			unfenced(headgate.CodeFenceMissing)
			if open := pgtest.Exec(t, to, `SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'headgate'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')
				UNION ALL SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'headgate_fence'::regnamespace AND relkind = 'r' AND has_table_privilege('`+role+`', oid, 'SELECT')`); len(open) > 0 {
				t.Errorf("open to everybody: %v", open)
			}
		})
	}
}
