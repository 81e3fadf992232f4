package backtest

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirlimit/weir/rules"
)

// Config says what is replayed, and how. Rules is required.
type Config struct {
	// Rules are those to try, and Against those to compare them with; nil is none.
	Rules, Against *rules.Set
	// Format is one of Formats; Combined if it is empty.
	Format string
	// Domain is that of all requests, except in a decision log; "default" if it is empty.
	Domain string
	// Map says which fields are attributes. It is added to DefaultMap of the format, and wins over it.
	Map []Mapping
	// TimeField names the field of the instant in JSON and CSV; by default the usual names are tried.
	TimeField string
	// Progress is called after every few thousand lines, with their number; nil is none.
	Progress func(lines int64)
	// MaxBytes is about how much memory counters and reports may have before Read returns ErrTooLarge; 0 is no bound.
	MaxBytes int64
}

// ErrTooLarge says that a replay needs more than Config.MaxBytes.
var ErrTooLarge = errors.New("the replay needs too much memory")

// Run replays logs, one after the other. It is not safe for concurrent use; make it with New.
type Run struct {
	config  Config
	parser  parser
	maps    []Mapping
	one     *engine
	against *engine // nil if there is none
	record  record
	check   check
	attrs   []rules.Attribute

	lines       int64
	faults      [faults]int64
	examples    [faults]string // where the first line of each stands
	missing     []int64        // by index in maps: lines without the field
	latest      int64          // of all lines
	first       int64
	backward    int64 // lines earlier than one before
	worst       int64 // the longest step back
	series      series
	both        [2][2]int64      // checks by whether Rules and Against deny
	sources     map[string]int64 // lines of a decision log by the source that it names
	differs     map[string]int64 // those that are decided in another way, likewise
	inexact     map[string]int64 // lines whose decision may be another than the node's, by why
	unexplained int64            // of differs: without such a reason
	approx      int64
	observers   []func(*record, *check)
	seen        int64 // for Progress
	unmeasured  int   // matches since the memory was measured last
	held        []heldLine
	ordered     lineQueue // lines of decision logs that wait for earlier ones
	log         string    // that is read
	n           int64     // of its line at hand, from 1
}

// New returns a Run that has read nothing. The error names a format, field or attribute that cannot be.
func New(c Config) (*Run, error) {
	c.Format, c.Domain = cmp.Or(c.Format, Combined), cmp.Or(c.Domain, "default")
	for _, set := range []*rules.Set{c.Rules, c.Against} {
		if err := replayable(set, c.Format); err != nil {
			return nil, err
		}
	}
	r := &Run{config: c, one: newEngine(c.Rules), differs: make(map[string]int64), sources: make(map[string]int64), inexact: make(map[string]int64)}
	if c.Against != nil {
		r.against = newEngine(c.Against)
	}
	if c.Format == Decisions && len(c.Map) > 0 {
		return nil, errors.New("map: a decision log says itself what the attributes are")
	}
	if c.TimeField != "" && c.Format != JSON && c.Format != CSV {
		return nil, fmt.Errorf("time field: format %s says itself where its instants are", c.Format)
	}
	r.maps = slices.Clone(c.Map)
	for _, m := range defaultMaps[c.Format] {
		if !slices.ContainsFunc(r.maps, func(o Mapping) bool { return o.Attribute == m.Attribute }) {
			r.maps = append(r.maps, m)
		}
	}
	for i, m := range r.maps {
		if slices.ContainsFunc(r.maps[:i], func(o Mapping) bool { return o.Attribute == m.Attribute }) {
			return nil, fmt.Errorf("map: attribute %q stands there twice", m.Attribute)
		}
	}
	r.compact()
	var err error
	if r.parser, err = r.newParser(); err != nil {
		return nil, err
	}
	r.missing = make([]int64, len(r.maps))
	return r, nil
}

// newParser returns one that has read nothing. The error names a field that the format does not have.
func (r *Run) newParser() (parser, error) {
	var wanted fields
	for _, m := range r.maps[:len(r.record.values)] {
		wanted = append(wanted, m.Field)
	}
	return newParser(r.config.Format, wanted, r.config.TimeField)
}

// replayable refuses rules whose requests a log of the format does not have. nil is fine.
func replayable(set *rules.Set, format string) error {
	if set == nil || format == Decisions {
		return nil
	}
	for rule := range set.Rules() {
		if rule.Descriptor != nil {
			return fmt.Errorf("rules: domain %q has descriptors of Envoy, whose requests only a log of format %s has", rule.Domain, Decisions)
		}
	}
	return nil
}

// compact orders the maps so that those with a field come first: the i-th is then at record.values[i].
func (r *Run) compact() {
	slices.SortStableFunc(r.maps, func(a, b Mapping) int { return cmp.Compare(b2i(a.Field == ""), b2i(b.Field == "")) })
	n := 0
	for _, m := range r.maps {
		if m.Field != "" {
			n++
		}
	}
	r.record.values = make([]string, n)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxLine is the longest line that is read, in bytes; longer ones are broken.
const maxLine = 1 << 20

// Read replays a log, which may be compressed with gzip. The error is about reading it.
func (r *Run) Read(name string, from io.Reader) (err error) {
	in := bufio.NewReaderSize(from, maxLine)
	if head, _ := in.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		unzip, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("log %s: %w", name, err)
		}
		in = bufio.NewReaderSize(unzip, maxLine)
	}
	if r.log = name; len(r.held) > 0 { // they keep the parser of their log
		if r.parser, err = r.newParser(); err != nil {
			return err
		}
	}
	r.parser.begin()
	for r.n = 1; ; r.n++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			r.fault(broken, name, r.n)
		} else if len(line) > 0 {
			if f := r.line(line); f != fine {
				r.fault(f, name, r.n)
			}
		}
		if r.seen++; r.config.Progress != nil && r.seen%8192 == 0 {
			r.config.Progress(r.seen)
		}
		if large := r.measure(); large != nil {
			return fmt.Errorf("log %s: line %d: %w", name, r.n, large)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("log %s: line %d: %w", name, r.n, err)
		}
	}
}

// measureEvery is after how many matches the memory is measured again. Each can make a counter.
const measureEvery = 1 << 16

// measure returns ErrTooLarge if the replay has outgrown MaxBytes.
func (r *Run) measure() error {
	r.unmeasured += len(r.one.matches) + 1
	if r.against != nil {
		r.unmeasured += len(r.against.matches)
	}
	if r.config.MaxBytes <= 0 || r.unmeasured < measureEvery {
		return nil
	}
	r.unmeasured = 0
	bytes := r.one.bytes()
	if r.against != nil {
		bytes += r.against.bytes()
	}
	if bytes > r.config.MaxBytes {
		return fmt.Errorf("%w: more than %d MiB", ErrTooLarge, r.config.MaxBytes>>20)
	}
	return nil
}

func (r *Run) fault(f fault, name string, n int64) {
	if f == blank || f == header {
		return
	}
	r.lines++
	r.faults[f]++
	if r.examples[f] == "" {
		r.examples[f] = fmt.Sprintf("%s:%d", name, n)
	}
}

// line replays a line, now or later, unless it has a fault.
func (r *Run) line(line []byte) fault {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	if len(line) == 0 || len(bytes.TrimSpace(line)) == 0 {
		return blank
	}
	if r.config.Format == Decisions {
		return r.orderedLine(line)
	}
	r.reset()
	if f := r.parser.parse(line, &r.record); f != fine {
		return f
	}
	r.parsed(line)
	return fine
}

// parsed replays the record of a line, now or later.
func (r *Run) parsed(line []byte) {
	if len(r.held) > 0 || r.isAhead(r.record.time) {
		r.hold(line, r.record.time)
	} else {
		r.replay()
	}
}

// reset makes the record one without values.
func (r *Run) reset() {
	clear(r.record.values)
	r.record.status, r.record.agent, r.record.logged = "", "", nil
}

// replay decides what the record says.
func (r *Run) replay() {
	r.lines++
	r.clock()
	c := &r.check
	if r.record.logged != nil {
		r.loggedCheck(c)
	} else {
		r.mappedCheck(c)
	}
	for _, f := range r.observers {
		f(&r.record, c)
	}
	r.decide(c)
}

// clock moves on to the instant of a line. Time never goes backwards for a counter, so a line that is earlier than one
// before counts as if it were of the same instant.
func (r *Run) clock() {
	t := r.record.time
	if r.first == 0 {
		r.first, r.latest = t, t
	}
	if t < r.latest {
		r.backward++
		r.worst = max(r.worst, r.latest-t)
	} else {
		r.latest = t
	}
	r.check.now = r.latest
}

func (r *Run) mappedCheck(c *check) {
	r.attrs = r.attrs[:0]
	for i := range r.maps {
		m := &r.maps[i]
		v := m.Value
		if i < len(r.record.values) {
			if v = r.record.values[i]; v == "" {
				r.missing[i]++
				continue
			}
		}
		r.attrs = append(r.attrs, rules.Attribute{Key: m.Attribute, Value: v})
	}
	c.domain, c.peek, c.logged = r.config.Domain, false, nil
	c.parts = append(c.parts[:0], part{attributes: r.attrs, tokens: 1})
}

func (r *Run) loggedCheck(c *check) {
	l := r.record.logged
	c.domain, c.peek, c.logged, c.parts = l.domain, l.peek, l, c.parts[:0]
	begin := 0
	for _, p := range l.parts {
		c.parts = append(c.parts, part{
			attributes: l.attributes[begin:p.attributes], tokens: p.tokens,
			logged: l.limits[p.limitsBegin:p.limitsEnd],
		})
		begin = p.attributes
	}
}

func (r *Run) decide(c *check) {
	one := r.one.decide(c)
	against := one
	if r.against != nil {
		r.unuse()
		against = r.against.decide(c)
	}
	if one == refused || against == refused {
		return
	}
	r.both[b2i(one == denied)][b2i(against == denied)]++
	if l := r.record.logged; l != nil {
		r.compare(l, against)
		if l.lent > 0 || l.lentAt > 0 || l.returned {
			r.approx++
		}
	}
	if r.against == nil {
		against = allowed
	}
	r.series.add(c.now, one, against)
}

// maxSources is how many sources of decisions are told apart.
const maxSources = 32

// compare counts what a decision log says of a line, and whether the replay decides it in the same way: by the rules to compare with, if
// there are some.
func (r *Run) compare(l *loggedCheck, v verdict) {
	if r.sources[l.source] > 0 || len(r.sources) < maxSources {
		r.sources[strings.Clone(l.source)]++
	}
	by := cmp.Or(r.against, r.one)
	for _, reason := range inexactNames {
		if by.inexact&reason.why != 0 {
			r.inexact[reason.name]++
			break
		}
	}
	if l.allowed == (v == allowed) {
		return
	}
	if r.differs[l.source] > 0 || len(r.differs) < maxSources {
		r.differs[strings.Clone(l.source)]++
	}
	if by.inexact == 0 {
		r.unexplained++
	}
}

// unuse lets the second engine look at the same limits of a decision log.
func (r *Run) unuse() {
	if l := r.record.logged; l != nil {
		for i := range l.limits {
			l.limits[i].used = false
		}
	}
}
