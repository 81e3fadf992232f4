package api

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// RuleStore holds the rules of a node. *rules.Store and *rules.Source are ones;
// the latter refuses to change them. Its methods are safe for concurrent use.
type RuleStore interface {
	// State returns the rules in force.
	State() *rules.State
	// Change stores what edit makes of the rules, unless dry, and returns them before
	// and after.
	Change(ctx context.Context, dry bool, edit rules.Edit) (old, next *rules.State, err error)
}

// ConfigServer implements weirv1.RateLimiterConfigServer. It is safe for
// concurrent use; make it with NewConfigServer.
type ConfigServer struct {
	weirv1.UnsafeRateLimiterConfigServer // the compiler names a method that is missing
	store                                RuleStore
	writing                              chan struct{} // a slot is taken for every change under way
	parsing                              chan struct{} // its slot is taken while a file is parsed, which takes much memory

	mu       sync.Mutex
	changed  chan struct{} // guarded by mu; closed and replaced with every change
	watchers int           // guarded by mu
	stopping chan struct{} // closed by Stop
	stop     sync.Once
}

// NewConfigServer returns a server of store's rules. Changed must be called after every change.
func NewConfigServer(store RuleStore) *ConfigServer {
	return &ConfigServer{
		store: store, writing: make(chan struct{}, maxWriters), parsing: make(chan struct{}, 1),
		changed: make(chan struct{}), stopping: make(chan struct{}),
	}
}

// CreateRateLimit implements weirv1.RateLimiterConfigServer.
func (s *ConfigServer) CreateRateLimit(ctx context.Context, req *weirv1.CreateRateLimitRequest) (*weirv1.RateLimit, error) {
	domain, spec, err := readRateLimit(req.GetRateLimit())
	if err != nil {
		return nil, err
	}
	if revision := req.GetRateLimit().GetRevision(); revision != 0 {
		return nil, wire.Invalid("rate_limit.revision", "%d is not 0, which a rule has that is not there yet", revision)
	}
	if err := mayChange(ctx, domain); err != nil {
		return nil, err
	}
	return s.put(ctx, domain, spec.ID, rules.Create(domain, spec))
}

// UpdateRateLimit implements weirv1.RateLimiterConfigServer.
func (s *ConfigServer) UpdateRateLimit(ctx context.Context, req *weirv1.UpdateRateLimitRequest) (*weirv1.RateLimit, error) {
	domain, spec, err := readRateLimit(req.GetRateLimit())
	if err != nil {
		return nil, err
	}
	if err := validRevision("rate_limit.revision", req.GetRateLimit().GetRevision()); err != nil {
		return nil, err
	}
	if err := mayChange(ctx, domain); err != nil {
		return nil, err
	}
	return s.put(ctx, domain, spec.ID, rules.Update(domain, spec, req.GetRateLimit().GetRevision()))
}

// changeRules is store.Change with bounds and with statuses for errors.
func (s *ConfigServer) changeRules(ctx context.Context, dry bool, edit rules.Edit) (old, next *rules.State, err error) {
	release, err := s.startWriting()
	if err != nil {
		return nil, nil, err
	}
	defer release()
	old, next, err = s.store.Change(ctx, dry, edit)
	return old, next, changeError(err)
}

// startWriting refuses what would be one change too many at once. Otherwise the
// caller calls release in the end.
func (s *ConfigServer) startWriting() (release func(), err error) {
	select {
	case s.writing <- struct{}{}:
		return func() { <-s.writing }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d changes of rules are under way, which is the most", maxWriters)
	}
}

// put makes a change and returns the rule as it is then.
func (s *ConfigServer) put(ctx context.Context, domain, id string, edit rules.Edit) (*weirv1.RateLimit, error) {
	_, next, err := s.changeRules(ctx, false, edit)
	if err != nil {
		return nil, err
	}
	rule := next.Set.Rule(domain, id)
	if rule == nil {
		return nil, status.Errorf(codes.Internal, "rule %q of domain %q is not among those that were stored", id, domain)
	}
	return writeRateLimit(rule, next), nil
}

// DeleteRateLimit implements weirv1.RateLimiterConfigServer.
func (s *ConfigServer) DeleteRateLimit(ctx context.Context, req *weirv1.DeleteRateLimitRequest) (*weirv1.DeleteRateLimitResponse, error) {
	if err := validName(req.GetDomain(), req.GetId()); err != nil {
		return nil, err
	}
	if err := validRevision("revision", req.GetRevision()); err != nil {
		return nil, err
	}
	domain := cmp.Or(req.GetDomain(), DefaultDomain)
	if err := mayChange(ctx, domain); err != nil {
		return nil, err
	}
	_, next, err := s.changeRules(ctx, false, rules.Delete(domain, req.GetId(), req.GetRevision()))
	switch {
	case status.Code(err) == codes.InvalidArgument:
		// The request is fine; what is left without the rule is not.
		return nil, status.Error(codes.FailedPrecondition, status.Convert(err).Message())
	case err != nil:
		return nil, err
	}
	return &weirv1.DeleteRateLimitResponse{Revision: next.Revision, RulesHash: next.Set.Hash()}, nil
}

// GetRateLimit implements weirv1.RateLimiterConfigServer.
func (s *ConfigServer) GetRateLimit(ctx context.Context, req *weirv1.GetRateLimitRequest) (*weirv1.RateLimit, error) {
	if err := validName(req.GetDomain(), req.GetId()); err != nil {
		return nil, err
	}
	state := s.store.State()
	domain := cmp.Or(req.GetDomain(), DefaultDomain)
	if err := mayRead(ctx, domain); err != nil {
		return nil, err
	}
	rule := state.Set.Rule(domain, req.GetId())
	if rule == nil {
		return nil, status.Errorf(codes.NotFound, "there is no such rule: %q in domain %q", req.GetId(), domain)
	}
	return writeRateLimit(rule, state), nil
}

// ListRateLimits implements weirv1.RateLimiterConfigServer. A token is the name of
// the last rule of the page before, so that it stays good while rules change.
func (s *ConfigServer) ListRateLimits(ctx context.Context, req *weirv1.ListRateLimitsRequest) (*weirv1.ListRateLimitsResponse, error) {
	if err := atMost("domain", req.GetDomain(), maxKey); err != nil {
		return nil, err
	}
	if err := mayRead(ctx, req.GetDomain()); err != nil {
		return nil, err
	}
	size := int(cmp.Or(req.GetPageSize(), defaultPage))
	if size < 1 || size > maxPage {
		return nil, wire.Invalid("page_size", "%d is not between 0 and %d", size, maxPage)
	}
	after, err := readPageToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	state := s.store.State()
	var left []*rules.Rule
	for r := range state.Set.Rules() {
		if (req.GetDomain() == "" || r.Domain == req.GetDomain()) && (req.GetPageToken() == "" || compareNames(nameOf(r), after) > 0) {
			left = append(left, r)
		}
	}
	slices.SortFunc(left, func(a, b *rules.Rule) int { return compareNames(nameOf(a), nameOf(b)) })
	resp := &weirv1.ListRateLimitsResponse{Revision: state.Revision, RulesHash: state.Set.Hash()}
	bytes := 0
	for i, r := range left {
		if i == size || bytes > maxPageBytes {
			resp.NextPageToken = pageToken(nameOf(left[i-1]))
			break
		}
		limit := writeRateLimit(r, state)
		bytes += proto.Size(limit)
		resp.RateLimits = append(resp.RateLimits, limit)
	}
	return resp, nil
}

// ruleName names a rule.
type ruleName struct{ domain, id string }

func nameOf(r *rules.Rule) ruleName { return ruleName{r.Domain, r.ID} }

func compareNames(a, b ruleName) int {
	return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.id, b.id))
}

// pageToken joins two names, of which the first may not contain a slash.
func pageToken(last ruleName) string { return url.PathEscape(last.domain) + "/" + last.id }

func readPageToken(token string) (ruleName, error) {
	domain, id, found := strings.Cut(token, "/")
	domain, err := url.PathUnescape(domain)
	if token != "" && (!found || domain == "" || id == "" || err != nil) {
		return ruleName{}, wire.Invalid("page_token", "is no next_page_token")
	}
	return ruleName{domain, id}, nil
}

// ApplyRules implements weirv1.RateLimiterConfigServer.
func (s *ConfigServer) ApplyRules(ctx context.Context, req *weirv1.ApplyRulesRequest) (*weirv1.ApplyRulesResponse, error) {
	name := cmp.Or(req.GetName(), "rules")
	if err := atMost("name", name, maxFileName); err != nil {
		return nil, err
	}
	docs, err := s.parse(ctx, name, req)
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		if err := mayChange(ctx, doc.Domain); err != nil {
			return nil, err
		}
	}
	edit := rules.Apply(docs, req.GetPrune())
	if req.ExpectedRevision != nil {
		edit = edit.At(req.GetExpectedRevision())
	}
	old, next, err := s.changeRules(ctx, req.GetDryRun(), edit)
	if err != nil {
		return nil, err
	}
	resp := &weirv1.ApplyRulesResponse{Revision: next.Revision, RulesHash: next.Set.Hash(), Changed: next != old}
	if req.GetDryRun() {
		resp.Revision = old.Revision
	}
	all := writeChanges(rules.Diff(old.Set, next.Set))
	resp.Changes = all[:min(len(all), maxChanges)]
	resp.MoreChanges = int32(len(all) - len(resp.Changes))
	return resp, nil
}

// parse reads the file to apply, one at a time.
func (s *ConfigServer) parse(ctx context.Context, name string, req *weirv1.ApplyRulesRequest) ([]rules.Document, error) {
	release, err := s.startWriting() // those that wait here count too
	if err != nil {
		return nil, err
	}
	defer release()
	select {
	case s.parsing <- struct{}{}:
		defer func() { <-s.parsing }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	text, err := rulesText(req)
	if err != nil {
		return nil, err
	}
	docs, _, err := s.store.State().Set.Options().ParseDocuments(name, text)
	return docs, changeError(err)
}

// rulesText returns the text of the file to apply.
func rulesText(req *weirv1.ApplyRulesRequest) ([]byte, error) {
	switch text, compressed := req.GetRules(), req.GetRulesGzip(); {
	case text != "" && len(compressed) > 0:
		return nil, wire.Invalid("rules_gzip", "must not be given together with rules")
	case len(compressed) > 0:
		plain, err := rules.Decompress(compressed)
		if err != nil {
			return nil, wire.Invalid("rules_gzip", "%v", err)
		}
		return plain, nil
	case text == "":
		return nil, wire.Invalid("rules", `must not be empty; for no rules, write {domain: default, rules: []} and set prune`)
	default:
		return []byte(text), nil
	}
}

func validRevision(field string, revision int64) error {
	if revision < 0 {
		return wire.Invalid(field, "%d is below 0", revision)
	}
	return nil
}

func validName(domain, id string) error {
	if err := atMost("domain", domain, maxKey); err != nil {
		return err
	}
	return within("id", id, maxRuleID)
}

// Changed tells that other rules are in force. It does not block.
func (s *ConfigServer) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Stop ends all watches, which would hold up a server that waits for its calls.
func (s *ConfigServer) Stop() { s.stop.Do(func() { close(s.stopping) }) }

// WatchRules implements weirv1.RateLimiterConfigServer.
func (s *ConfigServer) WatchRules(req *weirv1.WatchRulesRequest, stream weirv1.RateLimiterConfig_WatchRulesServer) error {
	return s.watch(stream.Context(), req, stream.Send)
}

// watch sends the state in force, and then every newer one that it gets to see
// between two calls of send.
func (s *ConfigServer) watch(ctx context.Context, req *weirv1.WatchRulesRequest, send func(*weirv1.WatchRulesResponse) error) error {
	if err := atMost("domain", req.GetDomain(), maxKey); err != nil {
		return err
	}
	if err := mayRead(ctx, req.GetDomain()); err != nil {
		return err
	}
	if err := s.addWatcher(); err != nil {
		return err
	}
	defer s.removeWatcher()
	sent := &rules.State{Set: new(rules.Set)}
	for first := true; ; first = false {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		state := s.store.State()
		if first || state.Revision != sent.Revision || state.Set.Hash() != sent.Set.Hash() {
			if err := sendState(send, req.GetDomain(), sent, state); err != nil {
				return err
			}
		}
		sent = state
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-revoked(ctx):
			return errRevoked
		case <-s.stopping:
			return status.Error(codes.Unavailable, "the node is stopping; watch another one")
		}
	}
}

func (s *ConfigServer) addWatcher() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers == maxWatchers {
		return status.Errorf(codes.ResourceExhausted, "this node has %d watches, which is the most", maxWatchers)
	}
	s.watchers++
	return nil
}

func (s *ConfigServer) removeWatcher() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers--
}

// sendState sends what is different between two states, in messages of bounded
// size.
func sendState(send func(*weirv1.WatchRulesResponse) error, domain string, old, next *rules.State) error {
	newMessage := func() *weirv1.WatchRulesResponse {
		return &weirv1.WatchRulesResponse{Revision: next.Revision, RulesHash: next.Set.Hash()}
	}
	message, bytes := newMessage(), 0
	add := func(size int) error { // sends what is full
		if bytes += size; bytes < maxPageBytes {
			return nil
		}
		full := message
		message, bytes = newMessage(), 0
		return send(full)
	}
	diff := rules.Diff(old.Set, next.Set)
	isNew := make(map[ruleName]bool)
	for _, r := range diff.Added {
		isNew[ruleName{r.Domain, r.Spec.ID}] = true
	}
	for _, r := range diff.Changed {
		isNew[ruleName{r.Domain, r.New.ID}] = true
	}
	for r := range next.Set.Rules() {
		if !isNew[nameOf(r)] || domain != "" && r.Domain != domain {
			continue
		}
		limit := writeRateLimit(r, next)
		message.RateLimits = append(message.RateLimits, limit)
		if err := add(proto.Size(limit)); err != nil {
			return err
		}
	}
	for _, r := range diff.Removed {
		if domain != "" && r.Domain != domain {
			continue
		}
		message.Deleted = append(message.Deleted, &weirv1.RateLimitName{Domain: r.Domain, Id: r.Spec.ID})
		if err := add(len(r.Domain) + len(r.Spec.ID)); err != nil {
			return err
		}
	}
	files, err := next.Set.DescriptorFiles(domain)
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	for _, file := range files {
		message.DescriptorFiles = append(message.DescriptorFiles, file)
		if err := add(len(file)); err != nil {
			return err
		}
	}
	message.Complete = true
	return send(message)
}
