package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Format is the version of the format that this software writes. It reads those from oldestFormat on.
const Format = 2

// oldestFormat is a format without members in its head.
const oldestFormat = 1

const mark = "weir snapshot "

// Bounds of a file.
const (
	maxLine  = 64      // bytes of the first line
	maxBlock = 1 << 30 // bytes; a partition is one block
	maxNode  = 128     // bytes of a node's id
	maxLives = 1 << 16 // members in a head, as many as in a view
	buffer   = 256 << 10
)

// Kinds of blocks.
const (
	kindHead      = 1
	kindPartition = 2
	kindEnd       = 3
)

// blockHead is the bytes of a block before its content.
const blockHead = 4 + 8 + 1

// Head says what a file is of.
type Head struct {
	// Cluster is the fingerprint of the cluster.
	Cluster uint64
	// Partitions is how many the cluster has.
	Partitions uint32
	// Node is the id of the node that has written the file, and Incarnation which life of it.
	Node        string
	Incarnation uint64
	// Time is when, in Unix nanoseconds by the clock of the node.
	Time int64
	// Members are the lives that were members then, as far as the node knew. A file of format 1 has none.
	Members []Life
}

// Life is a life of a node: ID is of 1 to 128 bytes.
type Life struct {
	ID          string
	Incarnation uint64
}

// Partition is the counters that a node had of one partition.
type Partition struct {
	Number uint32
	// Term and Sequence order snapshots of the partition, Term first. A higher one is newer.
	Term, Sequence uint64
	// Records are the counters, and Grants what was granted from a copy and the owner was not told.
	Records, Grants []byte
}

// Errors of files that are whole, and yet of no use.
var (
	ErrTooNew = errors.New("a newer version of weir has written it")
	ErrTooOld = errors.New("a version of weir has written it that is too old")
)

// Writer writes a file. Its methods return the error of the first write that has failed.
type Writer struct {
	w          io.Writer
	block      []byte
	blockCount uint64
	size       int64
}

// NewWriter begins a file.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	x := &Writer{w: w}
	if err := x.write(fmt.Appendf(nil, "%s%d\n", mark, Format)); err != nil {
		return nil, err
	}
	x.begin(kindHead)
	x.block = binary.LittleEndian.AppendUint64(x.block, h.Cluster)
	x.block = binary.LittleEndian.AppendUint32(x.block, h.Partitions)
	x.block = binary.LittleEndian.AppendUint64(x.block, uint64(h.Time))
	x.life(Life{h.Node, h.Incarnation})
	for _, l := range h.Members {
		x.life(l)
	}
	return x, x.end()
}

func (x *Writer) life(l Life) {
	x.block = binary.LittleEndian.AppendUint64(x.block, l.Incarnation)
	x.block = append(append(x.block, byte(len(l.ID))), l.ID...)
}

// Add adds a partition.
func (x *Writer) Add(p Partition) error {
	x.begin(kindPartition)
	x.block = binary.LittleEndian.AppendUint32(x.block, p.Number)
	x.block = binary.LittleEndian.AppendUint64(x.block, p.Term)
	x.block = binary.LittleEndian.AppendUint64(x.block, p.Sequence)
	x.block = binary.LittleEndian.AppendUint32(x.block, uint32(len(p.Grants)))
	x.block = append(append(x.block, p.Grants...), p.Records...)
	x.blockCount++
	return x.end()
}

// Finish ends the file. Without it the file is torn.
func (x *Writer) Finish() error {
	x.begin(kindEnd)
	x.block = binary.LittleEndian.AppendUint64(x.block, x.blockCount)
	return x.end()
}

// Size returns how many bytes were written.
func (x *Writer) Size() int64 { return x.size }

func (x *Writer) begin(kind byte) {
	var head [blockHead - 1]byte
	x.block = append(append(x.block[:0], head[:]...), kind)
}

func (x *Writer) end() error {
	if len(x.block)-blockHead > maxBlock {
		return fmt.Errorf("a block of %d bytes is not at most %d", len(x.block)-blockHead, maxBlock)
	}
	binary.LittleEndian.PutUint32(x.block, uint32(len(x.block)-blockHead))
	binary.LittleEndian.PutUint64(x.block[4:], xxhash.Sum64(x.block[blockHead-1:]))
	return x.write(x.block)
}

func (x *Writer) write(b []byte) error {
	n, err := x.w.Write(b)
	x.size += int64(n)
	return err
}

// Read reads a file of that many bytes, and calls head and each for what is in it. Either may return an error,
// which ends it. What it was called for counts only if Read returns nil: the file may be damaged further on.
func Read(r io.Reader, size int64, head func(Head) error, each func(Partition) error) error {
	in := &reader{r: bufio.NewReaderSize(r, buffer), left: size}
	if err := in.line(); err != nil {
		return err
	}
	kind, content, err := in.next()
	if err != nil {
		return err
	}
	h, err := in.parseHead(kind, content)
	if err != nil {
		return err
	}
	if err := head(h); err != nil {
		return err
	}
	for blocks := uint64(0); ; blocks++ {
		if kind, content, err = in.next(); err != nil {
			return err
		}
		switch kind {
		case kindPartition:
			p, err := parsePartition(content)
			if err == nil && p.Number >= h.Partitions {
				err = fmt.Errorf("it is damaged: partition %d is not below %d", p.Number, h.Partitions)
			}
			if err == nil {
				err = each(p)
			}
			if err != nil {
				return err
			}
		case kindEnd:
			return in.finish(content, blocks)
		default:
			return fmt.Errorf("it is damaged: there is no block of kind %d", kind)
		}
	}
}

type reader struct {
	r      *bufio.Reader
	format uint64
	left   int64 // bytes that the file still has
	buf    []byte
}

var errTorn = errors.New("it is torn: it ends before its last block, as if writing or copying it was cut off")

// line reads the first line.
func (x *reader) line() error {
	line, err := x.r.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return errTorn
	}
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return err
	}
	x.left -= int64(len(line))
	number, isMark := strings.CutPrefix(strings.TrimSuffix(string(line[:min(len(line), maxLine)]), "\n"), mark)
	format, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !isMark || err != nil || strconv.FormatUint(format, 10) != number:
		return fmt.Errorf("it is no snapshot: it does not begin with %q and a number", mark)
	case format > Format:
		return fmt.Errorf("%w: it has format %d, this one reads %d to %d", ErrTooNew, format, oldestFormat, Format)
	case format < oldestFormat:
		return fmt.Errorf("%w: it has format %d, this one reads %d to %d", ErrTooOld, format, oldestFormat, Format)
	}
	x.format = format
	return nil
}

// next returns the next block. Its content is valid until the next call.
func (x *reader) next() (kind byte, content []byte, err error) {
	var head [blockHead]byte
	if x.left -= blockHead; x.left < 0 {
		return 0, nil, errTorn
	}
	if _, err := io.ReadFull(x.r, head[:]); err != nil {
		return 0, nil, tornIfShort(err)
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	switch x.left -= n; {
	case n > maxBlock:
		return 0, nil, fmt.Errorf("it is damaged: a block has %d bytes, more than %d", n, maxBlock)
	case x.left < 0:
		return 0, nil, errTorn
	}
	if int64(cap(x.buf)) < n+1 {
		x.buf = make([]byte, n+1)
	}
	x.buf = x.buf[:n+1]
	x.buf[0] = head[blockHead-1]
	if _, err := io.ReadFull(x.r, x.buf[1:]); err != nil {
		return 0, nil, tornIfShort(err)
	}
	if want, got := binary.LittleEndian.Uint64(head[4:]), xxhash.Sum64(x.buf); want != got {
		return 0, nil, fmt.Errorf("it is damaged: the checksum of a block is %016x, its content has %016x", want, got)
	}
	return x.buf[0], x.buf[1:], nil
}

func tornIfShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}

// finish checks the end of a file with so many partitions.
func (x *reader) finish(content []byte, blocks uint64) error {
	switch {
	case len(content) != 8 || binary.LittleEndian.Uint64(content) != blocks:
		return fmt.Errorf("it is damaged: it has %d partitions, and its last block gives another number", blocks)
	case x.left != 0:
		return fmt.Errorf("it is damaged: there are %d bytes after its end", x.left)
	}
	return nil
}

var errShort = errors.New("it is damaged: a block is too short")

func (x *reader) parseHead(kind byte, b []byte) (h Head, err error) {
	switch {
	case kind != kindHead:
		return h, fmt.Errorf("it is damaged: it begins with a block of kind %d", kind)
	case len(b) < 12:
		return h, errShort
	}
	h.Cluster, h.Partitions = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])
	if x.format == 1 {
		return h, h.parseNode(b[12:])
	}
	if len(b) < 20 {
		return h, errShort
	}
	h.Time = int64(binary.LittleEndian.Uint64(b[12:]))
	node, b, err := parseLife(b[20:])
	if err != nil {
		return h, err
	}
	h.Node, h.Incarnation = node.ID, node.Incarnation
	for len(b) > 0 {
		var l Life
		switch l, b, err = parseLife(b); {
		case err != nil:
			return h, err
		case len(h.Members) == maxLives:
			return h, fmt.Errorf("it is damaged: there are more than %d members", maxLives)
		}
		h.Members = append(h.Members, l)
	}
	return h, nil
}

// parseNode reads what a head of format 1 ends with.
func (h *Head) parseNode(b []byte) error {
	if len(b) < 16 {
		return errShort
	}
	h.Incarnation, h.Time, h.Node = binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), string(b[16:])
	return checkID(len(h.Node))
}

func parseLife(b []byte) (l Life, rest []byte, err error) {
	if len(b) < 9 || len(b)-9 < int(b[8]) {
		return l, nil, errShort
	}
	end := 9 + int(b[8])
	return Life{ID: string(b[9:end]), Incarnation: binary.LittleEndian.Uint64(b)}, b[end:], checkID(int(b[8]))
}

func checkID(size int) error {
	if size > maxNode {
		return fmt.Errorf("it is damaged: a node's id of %d bytes is not of at most %d", size, maxNode)
	}
	return nil
}

func parsePartition(b []byte) (p Partition, err error) {
	if len(b) < 24 {
		return p, errShort
	}
	grants := uint64(binary.LittleEndian.Uint32(b[20:]))
	if uint64(len(b)-24) < grants {
		return p, errShort
	}
	return Partition{
		Number: binary.LittleEndian.Uint32(b), Term: binary.LittleEndian.Uint64(b[4:]), Sequence: binary.LittleEndian.Uint64(b[12:]),
		Grants: b[24 : 24+grants], Records: b[24+grants:],
	}, nil
}
