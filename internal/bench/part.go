package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync"
)

// PartVariable is the environment variable with which bench starts its own
// program again as one of its parts: the sink, or a node of the service. A part
// reads what it is from standard input, and ends when that does.
const PartVariable = "DISPATCHER_BENCH_PART"

// start is the first line that a part reads.
type start struct {
	Kind  string // kindSink or kindNode
	Hosts int    // of a sink: how many HTTP addresses
	// Of a node.
	Config   string // YAML
	Database string // URL
	Mode     string
}

const (
	kindSink = "sink"
	kindNode = "node"
)

// started is the first line that a part writes, when it is ready.
type started struct {
	Error string   `json:",omitempty"`
	Addr  string   `json:",omitempty"` // of a node's API
	Hosts []string `json:",omitempty"`
	SMTP  string   `json:",omitempty"`
}

// The orders that a part takes, one a line. Each is answered by one line.
type order struct {
	Do   string
	File string `json:",omitempty"`
	Flag bool   `json:",omitempty"`
}

const (
	doUsage    = "usage"
	doProfile  = "profile" // begin a CPU profile in File, or end it where File is empty
	doHeap     = "heap"    // write a heap profile into File
	doStats    = "stats"   // of a sink
	doCalls    = "calls"   // of a sink: how many
	doReset    = "reset"   // of a sink; Flag to keep arrivals
	doArrivals = "arrivals"
)

type reply struct {
	Error  string          `json:",omitempty"`
	Answer json.RawMessage `json:",omitempty"`
}

// part is a child process.
type part struct {
	kind    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	started started

	mu sync.Mutex // one order at a time
}

// startPart starts this program as a part and returns when it is ready.
func (b *bench) startPart(ctx context.Context, s start) (_ *part, err error) {
	p := &part{kind: s.Kind, cmd: exec.Command(b.o.Program, "bench")} //nolint:gosec,noctx // this program; it ends with its input
	p.cmd.Env = append(os.Environ(), PartVariable+"=1")
	p.cmd.Stderr = b.o.Log
	p.cmd.SysProcAttr = ownGroup()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", s.Kind, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", s.Kind, err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", s.Kind, err)
	}
	if err := p.exchange(ctx, s, &p.started); err != nil {
		return nil, fmt.Errorf("start the %s: %w", s.Kind, errors.Join(err, p.stop()))
	}
	if p.started.Error != "" {
		return nil, errors.Join(fmt.Errorf("start the %s: %s", s.Kind, p.started.Error), p.stop())
	}
	return p, nil
}

// exchange writes a line and reads one.
func (p *part) exchange(ctx context.Context, question, answer any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Closing its input ends the part, and so a read that nothing answers.
	defer context.AfterFunc(ctx, func() { _ = p.in.Close() })()
	if err := json.NewEncoder(p.in).Encode(question); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return json.Unmarshal(line, answer)
}

// ask gives an order and decodes what is answered into out, which may be nil.
func (p *part) ask(ctx context.Context, o order, out any) error {
	var r reply
	if err := p.exchange(ctx, o, &r); err != nil {
		return fmt.Errorf("ask the %s to %s: %w", p.kind, o.Do, err)
	}
	if r.Error != "" {
		return fmt.Errorf("ask the %s to %s: %s", p.kind, o.Do, r.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(r.Answer, out)
}

// stop ends the part and waits for it.
func (p *part) stop() error {
	_ = p.in.Close() // it may have ended by itself
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("end the %s: %w", p.kind, err)
	}
	return nil
}

// ServePart is a part's whole life. It returns when in ends.
func ServePart(ctx context.Context, in io.Reader, out, log io.Writer, version string) error {
	lines := json.NewDecoder(in)
	var s start
	if err := lines.Decode(&s); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	answers := json.NewEncoder(out)
	var (
		ready  started
		handle func(order) (any, error)
		stop   func() error
		err    error
	)
	switch s.Kind {
	case kindSink:
		ready, handle, stop, err = serveSink(s)
	case kindNode:
		ready, handle, stop, err = serveNode(ctx, s, log, version)
	default:
		err = fmt.Errorf("no part is called %q", s.Kind)
	}
	if err != nil {
		return errors.Join(err, answers.Encode(started{Error: err.Error()}))
	}
	if err := answers.Encode(ready); err != nil {
		return errors.Join(err, stop())
	}
	profiles := &profiler{}
	for {
		var o order
		if err := lines.Decode(&o); err != nil {
			return errors.Join(profiles.end(), stop())
		}
		var answer any
		var err error
		switch o.Do {
		case doUsage:
			answer, err = ownUsage()
		case doProfile:
			err = profiles.cpu(o.File)
		case doHeap:
			err = heapProfile(o.File)
		default:
			answer, err = handle(o)
		}
		if err := answers.Encode(replyOf(answer, err)); err != nil {
			return errors.Join(err, profiles.end(), stop())
		}
	}
}

func replyOf(answer any, err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Answer: text}
}

// profiler writes CPU profiles.
type profiler struct{ file *os.File }

// cpu begins a profile, or ends the one that runs where file is empty.
func (p *profiler) cpu(file string) (err error) {
	if err := p.end(); err != nil || file == "" {
		return err
	}
	if p.file, err = os.Create(file); err != nil { //nolint:gosec // the person who runs it names it
		return err
	}
	return pprof.StartCPUProfile(p.file)
}

func (p *profiler) end() error {
	if p.file == nil {
		return nil
	}
	pprof.StopCPUProfile()
	f := p.file
	p.file = nil
	return f.Close()
}

func heapProfile(file string) error {
	f, err := os.Create(file) //nolint:gosec // the person who runs it names it
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
