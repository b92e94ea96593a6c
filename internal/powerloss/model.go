package powerloss

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// file is what is known of one file.
type file struct {
	size   int64 // as the writes so far make it
	synced int64 // length that is durable; -1 when it never was
	named  bool  // its folder was synced after the file got its name
	syncIO bool  // opened so that every write is synced
}

// model follows the files below one folder through a trace.
type model struct {
	root    string
	files   map[string]*file
	offsets map[string]int64 // of a descriptor, by number and path
	appends map[string]bool
	begun   map[string]pending // by process and call
	syncs   int
}

// pending is a system call that has begun and not returned.
type pending struct {
	call   call
	length int64 // of the file when a sync began
}

// newModel takes what is below the folder now as durable.
func newModel(root string) (*model, error) {
	m := &model{
		root: root, files: map[string]*file{}, offsets: map[string]int64{},
		appends: map[string]bool{}, begun: map[string]pending{},
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			m.files[path] = &file{size: info.Size(), synced: info.Size(), named: true}
		}
		return err
	})
	return m, err
}

// line follows one line of the trace.
func (m *model) line(s string) {
	c, ok := parseLine(s)
	if !ok {
		return
	}
	key := c.pid + " " + c.name
	switch {
	case c.begun:
		m.begun[key] = pending{c, m.lengthOf(c)}
		return
	case c.ended:
		p, ok := m.begun[key]
		delete(m.begun, key)
		if !ok {
			return
		}
		c.args = append(p.call.args, c.args...)
		m.apply(c, p.length)
	default:
		m.apply(c, m.lengthOf(c))
	}
}

// lengthOf is the length that a sync which begins now makes durable.
func (m *model) lengthOf(c call) int64 {
	if len(c.args) == 0 {
		return 0
	}
	if f := m.byFD(c.args[0]); f != nil {
		return f.size
	}
	return 0
}

func (m *model) byFD(arg string) *file {
	path, ok := fdPath(arg)
	if !ok {
		return nil
	}
	return m.files[path]
}

// inside reports whether the path is a file or folder that is followed.
func (m *model) inside(path string) bool {
	return path == m.root || strings.HasPrefix(path, m.root+"/")
}

func (m *model) apply(c call, length int64) {
	if c.ret < 0 || len(c.args) == 0 {
		return
	}
	switch c.name {
	case "open", "openat", "openat2", "creat":
		m.open(c)
	case "write", "writev":
		m.write(c, m.position(c.args[0]), true)
	case "pwrite64", "pwritev", "pwritev2":
		m.pwrite(c)
	case "lseek":
		m.offsets[c.args[0]] = c.ret
	case "ftruncate":
		m.truncate(m.byFD(c.args[0]), c)
	case "fallocate":
		m.allocate(c)
	case "fsync", "fdatasync":
		m.sync(c, length)
	case "sync", "syncfs":
		m.syncAll()
	case "rename":
		m.rename(c.args, "AT_FDCWD", "AT_FDCWD")
	case "renameat", "renameat2":
		if len(c.args) >= 4 {
			m.rename([]string{c.args[1], c.args[3]}, c.args[0], c.args[2])
		}
	case "unlink":
		m.remove("AT_FDCWD", c.args[0])
	case "unlinkat":
		if len(c.args) >= 2 {
			m.remove(c.args[0], c.args[1])
		}
	case "close":
		delete(m.offsets, c.args[0])
		delete(m.appends, c.args[0])
	}
}

func (m *model) open(c call) {
	path := c.retFD
	if path == "" || !m.inside(path) {
		return
	}
	flags := strings.Join(c.args, "|")
	fd := strconv.FormatInt(c.ret, 10) + "<" + path + ">"
	m.offsets[fd], m.appends[fd] = 0, strings.Contains(flags, "O_APPEND")
	f := m.files[path]
	if f == nil {
		if !strings.Contains(flags, "O_CREAT") && c.name != "creat" {
			return // a folder
		}
		f = &file{synced: -1}
		m.files[path] = f
	}
	if strings.Contains(flags, "O_TRUNC") || c.name == "creat" {
		f.size, f.synced = 0, min(f.synced, 0)
	}
	f.syncIO = strings.Contains(flags, "O_SYNC") || strings.Contains(flags, "O_DSYNC")
}

// position is where a plain write through the descriptor goes. A descriptor
// that is not known (duplicated, or renamed since it was opened) appends, which
// is what is done with it in practice.
func (m *model) position(fd string) int64 {
	f := m.byFD(fd)
	if f == nil {
		return 0
	}
	at, ok := m.offsets[fd]
	if !ok || m.appends[fd] {
		return f.size
	}
	return at
}

func (m *model) write(c call, at int64, moves bool) {
	f := m.byFD(c.args[0])
	if f == nil {
		return
	}
	if moves {
		m.offsets[c.args[0]] = at + c.ret
	}
	f.size = max(f.size, at+c.ret)
	if f.syncIO {
		f.synced = f.size
	}
}

func (m *model) pwrite(c call) {
	if len(c.args) < 4 {
		return
	}
	at, err := strconv.ParseInt(c.args[3], 10, 64)
	if err == nil {
		m.write(c, at, false)
	}
}

func (m *model) truncate(f *file, c call) {
	if f == nil || len(c.args) < 2 {
		return
	}
	n, err := strconv.ParseInt(c.args[1], 10, 64)
	if err != nil {
		return
	}
	f.size, f.synced = n, min(f.synced, n)
}

func (m *model) allocate(c call) {
	f := m.byFD(c.args[0])
	if f == nil || len(c.args) < 4 || strings.Contains(c.args[1], "KEEP_SIZE") {
		return
	}
	at, err1 := strconv.ParseInt(c.args[2], 10, 64)
	n, err2 := strconv.ParseInt(c.args[3], 10, 64)
	if err1 == nil && err2 == nil {
		f.size = max(f.size, at+n)
	}
}

func (m *model) sync(c call, length int64) {
	path, ok := fdPath(c.args[0])
	if !ok {
		return
	}
	m.syncs++
	if f := m.files[path]; f != nil {
		f.synced = max(f.synced, min(length, f.size))
		return
	}
	for name, f := range m.files { // a folder: its names are durable
		if filepath.Dir(name) == path {
			f.named = true
		}
	}
}

func (m *model) syncAll() {
	for _, f := range m.files {
		f.synced, f.named = f.size, true
	}
}

func (m *model) rename(names []string, fromFolder, toFolder string) {
	if len(names) < 2 {
		return
	}
	from, ok1 := pathAt(fromFolder, names[0])
	to, ok2 := pathAt(toFolder, names[1])
	if !ok1 || !ok2 {
		return
	}
	for name, f := range m.files {
		if name != from && !strings.HasPrefix(name, from+"/") {
			continue
		}
		delete(m.files, name)
		if moved := to + strings.TrimPrefix(name, from); m.inside(moved) {
			f.named = false
			m.files[moved] = f
		}
	}
}

func (m *model) remove(folder, name string) {
	if path, ok := pathAt(folder, name); ok {
		delete(m.files, path)
	}
}
