package bench

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profiled runs fn, and writes NAME.cpu and NAME.allocs into the folder for
// profiles if there is one. Allocations are those since the process started.
func (r *run) profiled(name string, fn func() error) (err error) {
	if r.Profile == "" {
		return fn()
	}
	cpu, err := os.Create(filepath.Join(r.Profile, name+".cpu"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	err = fn()
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	allocs, err := os.Create(filepath.Join(r.Profile, name+".allocs"))
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
}
