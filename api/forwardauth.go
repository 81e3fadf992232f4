package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/clientip"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/rules"
)

// authHandler answers proxies that ask whether a request may go on: 200 or 429, both with the header fields
// that its client is to see. They may name the domain in the path, but not in the query, where some of them
// put what the client has sent. An allowed request has waited here for the turn that a rule has booked for
// it: a proxy would not wait.
type authHandler struct {
	*Limiter
	waiting *atomic.Int64 // requests that may be held until their turn comes; those above maxAuthWaiting may not
}

// The header fields in which proxies say what they ask about: nginx by convention, then
// Traefik and Caddy.
var (
	uriHeaders    = [2]string{"X-Original-Uri", "X-Forwarded-Uri"}
	methodHeaders = [2]string{"X-Original-Method", "X-Forwarded-Method"}
)

// ServeHTTP implements http.Handler.
func (h authHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	longest := h.auth.MaxDelay
	if longest > 0 {
		if h.waiting.Add(1) > maxAuthWaiting {
			longest = 0
		}
		defer h.waiting.Add(-1)
	}
	answer, delay, err := h.answer(r, longest)
	switch {
	case err == nil:
		if delay > 0 && !sleep(r.Context(), delay) {
			return // the proxy has gone
		}
		err = h.style.Set(w.Header(), answer)
	case status.Code(err) == codes.ResourceExhausted:
		w.Header().Set("Retry-After", retryOverloaded)
	}
	if err != nil {
		_ = h.failed("auth", err)
	}
	switch {
	case err != nil:
		problemOf(err).Write(w)
	case answer.Denied:
		headers.ProblemOf(answer).Write(w)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

// problemOf returns the problem of a request that was not decided.
func problemOf(err error) headers.Problem {
	st := status.Convert(err)
	if st.Code() == codes.ResourceExhausted {
		return headers.Overloaded(st.Message())
	}
	code := http.StatusInternalServerError
	switch st.Code() {
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	case codes.PermissionDenied:
		code = http.StatusForbidden
	case codes.Unavailable:
		code = http.StatusServiceUnavailable
	default:
	}
	return headers.Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: st.Message()}
}

// sleep waits, and reports whether ctx has let it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// answer decides the request that r asks about, and says how long it has to wait: for longest
// at most. The error is one about a field, errRefused or check.ErrOverloaded.
func (h authHandler) answer(r *http.Request, longest time.Duration) (answer headers.Answer, delay time.Duration, err error) {
	start := time.Now()
	w := h.newWork(r.Context())
	defer h.works.Put(w)
	w.API, w.Start = "auth", start
	ctx := h.checks.StartSpan(r.Context(), &w.Work, w.API)
	defer w.EndSpan()
	w.Request.Domain = cmp.Or(r.PathValue("domain"), DefaultDomain)
	if err := within("domain", w.Request.Domain, maxKey); err != nil {
		return answer, 0, err
	}
	if err := w.MayAsk(); err != nil {
		return answer, 0, err
	}
	if err := h.admit(ctx, w, 1); err != nil {
		return answer, 0, err
	}
	if w.Request.Attributes, err = h.auth.attributes(r, w.Request.Attributes); err != nil {
		return answer, 0, err
	}
	if answer, err = h.checkOne(ctx, w, longest); err != nil {
		return answer, 0, err
	}
	w.Observe(h.duration.auth)
	if !answer.Denied {
		delay = min(w.delay(), longest)
	}
	return answer, delay, nil
}

// delay is how long the turns that are booked let an allowed request wait.
func (w *work) delay() (longest time.Duration) {
	for i := range w.Takes {
		if t := &w.Takes[i]; check.Answered(t) && !t.Shadow {
			longest = max(longest, time.Duration(t.Decision.Delay))
		}
	}
	return longest
}

// checkOne decides w.Request, which takes one token and can wait for so long at most.
func (l *Limiter) checkOne(ctx context.Context, w *work, longest time.Duration) (headers.Answer, error) {
	l.checks.Note(&w.Work, 1)
	if err := l.checks.Match(&w.Work, 1); err != nil {
		return headers.Answer{}, err
	}
	w.WaitAtMost(longest)
	if err := w.endGroup(false); err != nil {
		return headers.Answer{}, err
	}
	if err := l.checks.Decide(ctx, &w.Work); err != nil {
		return headers.Answer{}, err
	}
	var verdicts check.VerdictCounts
	answer := headers.Of(w.answer(0, &verdicts))
	l.checks.CountVerdicts(&verdicts)
	return answer, nil
}

// attributes appends the attributes of the request that r asks about.
func (c *AuthConfig) attributes(r *http.Request, attributes []rules.Attribute) ([]rules.Attribute, error) {
	add := func(key, value string) {
		if value != "" {
			attributes = append(attributes, rules.Attribute{Key: key, Value: value})
		}
	}
	add(rules.IPAttribute, c.clientIP(r))
	uri, name, err := either(r.Header, uriHeaders, maxPath)
	if err != nil {
		return attributes, err
	}
	endpoint, err := pathOf(uri)
	if err != nil {
		return attributes, wire.Invalid(name, "%v", err)
	}
	add(endpointAttribute, endpoint)
	method, _, err := either(r.Header, methodHeaders, maxValue)
	if err != nil {
		return attributes, err
	}
	if method == "" {
		method = r.Method
	}
	add(methodAttribute, method)
	for _, a := range c.Attributes {
		value, err := single(r.Header, a.Header, maxValue)
		if err != nil {
			return attributes, err
		}
		add(a.Name, value)
	}
	return attributes, nil
}

// clientIP returns the address of the client of the request that r asks about, empty if even
// the caller has none.
func (c *AuthConfig) clientIP(r *http.Request) string {
	syntax := clientip.List
	if c.ClientIPHeader == "Forwarded" {
		syntax = clientip.Forwarded
	}
	return clientip.Proxies(c.TrustedProxies).Client(r.RemoteAddr, r.Header[c.ClientIPHeader], syntax)
}

// either returns the value of one of two header fields that mean the same, and the field's name. A proxy
// that writes one of them passes on the other as clients send it: two values are refused, so that no client
// chooses the limit that applies to it.
func either(h http.Header, names [2]string, most int) (value, name string, err error) {
	first, err := single(h, names[0], most)
	if err != nil {
		return "", "", err
	}
	second, err := single(h, names[1], most)
	switch {
	case err != nil:
		return "", "", err
	case first == "":
		return second, names[1], nil
	case second != "" && second != first:
		return "", "", wire.Invalid(names[0], "%q is not what %s says: %q", clip(first), names[1], clip(second))
	}
	return first, names[0], nil
}

// single returns the value of a header field, empty if there is none.
func single(h http.Header, name string, most int) (string, error) {
	values := h[name]
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", wire.Invalid(name, "stands there %d times", len(values))
	}
	value := strings.ToValidUTF8(values[0], "\uFFFD")
	if strings.ContainsFunc(value, unicode.IsControl) {
		return "", wire.Invalid(name, "%q has a control character", clip(value))
	}
	return value, atMost(name, values[0], most)
}

// clip returns what is said of a value that may be long.
func clip(s string) string { return s[:min(len(s), maxKey)] }

// pathOf returns the path of a URI in one spelling of the many that servers take for the
// same: with escapes decoded and without dots, repeated slashes, query and fragment.
func pathOf(uri string) (string, error) {
	if uri == "" {
		return "", nil
	}
	uri, _, _ = strings.Cut(uri, "#")
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Path == "" && u.Host == "" {
		return "", fmt.Errorf("%q is not a path or a URI", clip(uri))
	}
	if strings.ContainsFunc(u.Path, unicode.IsControl) {
		return "", fmt.Errorf("%q has a control character", clip(u.Path))
	}
	clean := path.Clean("/" + u.Path)
	switch u.Path[strings.LastIndexByte(u.Path, '/')+1:] {
	case "", ".", "..": // a directory
		clean = strings.TrimSuffix(clean, "/") + "/"
	}
	return strings.ToValidUTF8(clean, "\uFFFD"), nil
}
