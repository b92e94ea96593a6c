package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/principal"
)

// AdminName is the principal that dev mode creates for whoever starts it.
const AdminName = "admin"

// TokenFile is the file in the data folder that holds dev's admin token.
const TokenFile = "token"

// URLFile is the file in the data folder that holds the URL of a running node.
const URLFile = "url"

// declarePrincipals writes the declared principals into the directory, with
// the tokens that the configuration refers to.
func (l *Loaded) declarePrincipals(ctx context.Context, dir *principal.Directory) error {
	for i, c := range l.Principals {
		path := fmt.Sprintf("principals[%d]", i)
		p := headgate.Principal{Name: c.Name, Kind: c.Kind, Roles: c.Roles, Emit: c.Emit, Listen: c.Listen, Lease: c.Lease}
		if c.Roots.Rate > 0 {
			p.Roots = headgate.RootRight{Allowed: true, Rate: float64(c.Roots.Rate), Burst: c.Roots.Burst}
		}
		if err := dir.Put(ctx, p, "config"); err != nil {
			return l.refusedAt(path, fmt.Errorf("principal %s: %w", c.Name, err))
		}
		if c.Token == "" {
			continue
		}
		token, err := c.Token.Resolve()
		if err != nil {
			return l.at(path+".token", headgate.NewError(headgate.CodeInvalidConfig, "token of principal %s: %v", c.Name, err))
		}
		if err := dir.Adopt(ctx, c.Name, token); err != nil {
			return l.refusedAt(path+".token", fmt.Errorf("token of principal %s: %w", c.Name, err))
		}
	}
	return nil
}

// devAdmin makes sure that the admin of dev mode exists, and returns its token,
// which lies in the data folder for the commands to find.
func (l *Loaded) devAdmin(ctx context.Context, dir *principal.Directory) (string, error) {
	admin := headgate.Principal{
		Name: AdminName, Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleAdmin},
		Emit: []string{"*"}, Listen: []string{"*"},
		Roots: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6},
	}
	if err := dir.Put(ctx, admin, "config"); err != nil {
		return "", err
	}
	path := filepath.Join(l.dataDir(), TokenFile)
	if b, err := os.ReadFile(path); err == nil && !l.Memory {
		token := strings.TrimSpace(string(b))
		if p, err := dir.Authenticate(ctx, token); err == nil && p.Name == AdminName {
			return token, os.Chmod(path, 0o600)
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	token, err := dir.Issue(ctx, AdminName, true, 0*time.Second)
	if err != nil {
		return "", err
	}
	return token, writeFile(path, token+"\n", 0o600)
}

// writeFile replaces a file with the given mode, whatever mode it had.
func writeFile(path, content string, mode fs.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(content), mode); err != nil {
		return err
	}
	if err := os.Chmod(tmp, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// emptyDir makes sure that a folder is there and empty.
func emptyDir(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o700)
}
