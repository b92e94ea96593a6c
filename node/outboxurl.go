package node

import (
	"strings"

	"github.com/headgate/headgate"
)

// sqliteScheme begins the URL of an outbox in an SQLite database.
const sqliteScheme = "sqlite"

// fits refuses settings that do not go with a resolved URL: one behind env: is
// known only now.
func (o *Outbox) fits(url string) error {
	scheme, _, found := strings.Cut(url, ":")
	if !found {
		return headgate.NewError(headgate.CodeInvalidConfig, "outbox %s: url: want postgres://… or sqlite:PATH", o.Name)
	}
	if what, problem := o.mismatch(scheme, url); problem != "" {
		return headgate.NewError(headgate.CodeInvalidConfig, "outbox %s%s: %s", o.Name, what, problem)
	}
	return nil
}

// problem says what is wrong with the URL of an outbox, and in which setting;
// "" is the entry itself.
func (o *Outbox) problem() (setting, problem string) {
	u := string(o.URL)
	scheme, _, found := strings.Cut(u, ":")
	switch {
	case u == "":
		return "", "url is missing"
	case o.URL.IsReference():
		return "", ""
	case !found || scheme != sqliteScheme && !strings.Contains(u, "://"):
		return ".url", "want a URL such as postgres://USER@HOST:5432/DATABASE or sqlite:PATH"
	case scheme != sqliteScheme && holdsPassword(u):
		return ".url", "holds a password; write env:NAME or file:PATH instead"
	}
	return o.mismatch(scheme, u)
}

// mismatch names a setting that does not go with the database.
func (o *Outbox) mismatch(scheme, url string) (setting, problem string) {
	if scheme != sqliteScheme {
		if o.Principal != "" {
			return ".principal", "is for SQLite; other databases have roles"
		}
		return "", ""
	}
	switch {
	case strings.Trim(strings.TrimPrefix(url, sqliteScheme+":"), "/") == "":
		return ".url", "want sqlite:PATH"
	case o.Principal == "":
		return "", "principal is missing: SQLite has no roles, so say who writes to the database"
	case len(o.Roles) > 0:
		return ".roles", "SQLite has no roles; say who writes by principal"
	case o.WALBudget != 0:
		return ".wal_budget", "is for PostgreSQL: in SQLite the rows wait in their table"
	}
	return "", ""
}

// nobody refuses a writer that stands for no principal.
func (o *Outbox) nobody(role string) error {
	if o.Principal != "" {
		bad := headgate.NewError(headgate.CodeForbidden, "outbox %s writes as %s, and there is no such principal", o.Name, o.Principal)
		bad.Fix = "Declare the principal; then replay the event."
		return bad
	}
	bad := headgate.NewError(headgate.CodeForbidden, "the database role %s of outbox %s maps to no principal", role, o.Name)
	bad.Fix = "Map the role under outbox.roles, or declare a principal of its name; then replay the event."
	return bad
}
