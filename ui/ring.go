package ui

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"net/url"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// ringColumns are the columns of the picture.
const ringColumns = 64

// ringBody is the ring as a picture.
type ringBody struct {
	View          uint64
	Partitions    uint32
	Shares        []shareView
	Cells         []cell
	Columns, Rows int
	Only          string // the node whose partitions stand out; empty: none
	Moving        uint32 // partitions that are on their way to a node, or are to be
	Version       string // changes whenever the picture does
}

// shareView is one node's share.
type shareView struct {
	*weirv1.RingShare
	Colour  string
	Only    bool
	Active  uint32 // partitions that it decides for
	Leaving uint32 // partitions that it is to hand over
	Known   bool   // Active and Leaving are known
	State   string
	Tone    string
}

// URL is the path of the page on which this node's partitions stand out, or none if they do already.
func (v shareView) URL() string {
	if v.Only {
		return "/ui/ring"
	}
	return "/ui/ring?node=" + url.QueryEscape(v.GetId())
}

// cell is one partition in the picture.
type cell struct {
	X, Y           int
	Owner, Standby string // colours; Standby is empty without one
	Dim            bool   // it is of another node than the one to be seen
	Title          string
}

// PartURL is the path of the picture alone.
func (b ringBody) PartURL() string { return "/ui/ring?part=picture&node=" + url.QueryEscape(b.Only) }

func (s *Server) ring(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body, err := s.lookAtRing(r.Context(), q.Get("node"), q.Get("seen"))
	switch {
	case err != nil:
		s.fail(w, r, err)
	case q.Get("part") == "":
		s.render(w, r, http.StatusOK, "ring", "Ring", "ring", body)
	case body.Version == q.Get("seen"):
		w.WriteHeader(http.StatusNoContent)
	default:
		s.renderPart(w, "ring", "picture", body)
	}
}

// lookAtRing returns the ring, without the picture if it is of the version seen.
func (s *Server) lookAtRing(ctx context.Context, only, seen string) (ringBody, error) {
	body := ringBody{Columns: ringColumns, Only: only}
	list, err := s.nodes.ListNodes(ctx, &weirv1.ListNodesRequest{})
	if err != nil {
		return body, err
	}
	ring, err := s.nodes.GetRing(ctx, &weirv1.GetRingRequest{})
	if err != nil {
		return body, err
	}
	nodes := make(map[string]*weirv1.Node)
	version := fnv.New64a()
	fmt.Fprintln(version, ring.GetView())
	for _, n := range list.GetNodes() {
		nodes[n.GetId()] = n
		word, _, _ := stateOf(n)
		fmt.Fprintln(version, n.GetId(), word, n.GetActive(), n.GetWanted(), n.GetLeaving())
		body.Moving += n.GetWanted()
	}
	if body.Version = fmt.Sprintf("%x", version.Sum64()); body.Version == seen {
		return body, nil
	}
	if ring, err = s.nodes.GetRing(ctx, &weirv1.GetRingRequest{Tables: true}); err != nil {
		return body, err
	}
	body.View, body.Partitions = ring.GetView(), ring.GetPartitions()
	for i, share := range ring.GetShares() {
		v := shareView{RingShare: share, Colour: nodeColour(i), Only: share.GetId() == only}
		if n := nodes[share.GetId()]; n != nil {
			v.Known, v.Active, v.Leaving = true, n.GetActive(), n.GetLeaving()
			v.State, v.Tone, _ = stateOf(n)
		}
		body.Shares = append(body.Shares, v)
	}
	body.draw(ring)
	return body, nil
}

// draw makes the cells of the picture.
func (b *ringBody) draw(ring *weirv1.GetRingResponse) {
	b.Rows = (len(ring.GetOwners()) + ringColumns - 1) / ringColumns
	for p, owner := range ring.GetOwners() {
		o, standby := b.Shares[owner], ring.GetStandbys()[p]
		c := cell{X: p % ringColumns, Y: p / ringColumns, Owner: o.Colour, Title: fmt.Sprintf("partition %d: %s", p, o.GetId())}
		c.Dim = b.Only != "" && o.GetId() != b.Only
		if standby != owner {
			other := b.Shares[standby]
			c.Standby, c.Title = other.Colour, c.Title+", standby "+other.GetId()
			c.Dim = c.Dim && other.GetId() != b.Only
		}
		b.Cells = append(b.Cells, c)
	}
}

// firstColours are those of the first nodes, which are chosen by hand.
var firstColours = []string{"#2f7ebc", "#e08a1e", "#2f9e6e", "#b5508f", "#7d6cc4", "#a3791f", "#c8504a", "#5f7482"}

// nodeColour returns the colour of the i-th node: of those after the first ones, hues that are a golden angle apart, in three
// lightnesses in turn. So no two of a few hundred are the same.
func nodeColour(i int) string {
	if i < len(firstColours) {
		return firstColours[i]
	}
	const golden = 137.50776405003785
	hue := math.Mod(float64(i)*golden, 360)
	return hexOf(hue, 0.55, []float64{0.42, 0.56, 0.68}[i%3])
}

// hexOf returns a colour of a hue in degrees, a saturation and a lightness.
func hexOf(hue, saturation, lightness float64) string {
	c := saturation * (1 - math.Abs(2*lightness-1))
	part := func(n float64) int {
		k := math.Mod(n+hue/30, 12)
		return int(math.Round(255 * (lightness - c/2*max(-1, min(k-3, 9-k, 1)))))
	}
	return fmt.Sprintf("#%02x%02x%02x", part(0), part(8), part(4))
}
