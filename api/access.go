package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/overload"
)

// need is what a call needs.
type need struct {
	role access.Role
	// port is where it is served, if the node has an admin port.
	port Port
	// quick says that the call is short and asks in one domain: it needs no principal in its context if
	// that may ask in all.
	quick bool
	// changes says that the call changes something, which the audit log names.
	changes bool
}

// needs has the role for every gRPC method, as its full name, and for every path over HTTP, as a pattern of
// http.ServeMux. What is not here needs admin, and is served at the admin port if there is one. Of roles in one
// domain, the handlers of checks and rules check that it is the right one.
var needs = map[string]need{
	"/weir.v1.RateLimiter/CheckRateLimit":                          {role: access.Check, port: PublicPort, quick: true},
	"/weir.v1.RateLimiter/CheckRateLimitBatch":                     {role: access.Check, port: PublicPort, quick: true},
	"/weir.v1.RateLimiter/StreamRateLimits":                        {role: access.Check, port: PublicPort},
	"/weir.v1.RateLimiter/GetRateLimitStatus":                      {role: access.Check},
	"/weir.v1.RateLimiter/ExplainRateLimit":                        {role: access.Check},
	"/weir.v1.RateLimiter/ExplainDescriptors":                      {role: access.Check},
	"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit": {role: access.Check, port: PublicPort, quick: true},

	"/weir.v1.RateLimiterHealth/GetHealthStatus":  {role: access.Check}, // clients identify nodes by it
	"/weir.v1.RateLimiterHealth/ResetRateLimit":   {role: access.Admin, port: AdminPort, changes: true},
	"/weir.v1.RateLimiterHealth/ResetDescriptors": {role: access.Admin, port: AdminPort, changes: true},

	"/weir.v1.RateLimiterConfig/CreateRateLimit": {role: access.Rules, port: AdminPort, changes: true},
	"/weir.v1.RateLimiterConfig/UpdateRateLimit": {role: access.Rules, port: AdminPort, changes: true},
	"/weir.v1.RateLimiterConfig/DeleteRateLimit": {role: access.Rules, port: AdminPort, changes: true},
	"/weir.v1.RateLimiterConfig/GetRateLimit":    {role: access.Rules},
	"/weir.v1.RateLimiterConfig/ListRateLimits":  {role: access.Rules},
	"/weir.v1.RateLimiterConfig/ApplyRules":      {role: access.Rules, port: AdminPort, changes: true},
	"/weir.v1.RateLimiterConfig/WatchRules":      {role: access.Rules},

	"/weir.v1.Cluster/ListNodes":  {role: access.Check}, // clients find nodes by it
	"/weir.v1.Cluster/GetRing":    {role: access.Admin, port: AdminPort},
	"/weir.v1.Cluster/DrainNode":  {role: access.Admin, port: AdminPort, changes: true},
	"/weir.v1.Cluster/RemoveNode": {role: access.Admin, port: AdminPort, changes: true},
	"/weir.v1.Cluster/ImportView": {role: access.Admin, port: AdminPort, changes: true},
	"/weir.v1.Cluster/GetOptions": {role: access.Admin, port: AdminPort},
	"/weir.v1.Cluster/ListAudit":  {role: access.Admin, port: AdminPort},
	// What a rule denies, of one node.
	"/weir.v1.Cluster/GetRuleCounts": {role: access.Rules},
	// It has identifiers of the clients' own users.
	"/weir.v1.Cluster/ListTopKeys": {role: access.Rules, port: AdminPort},

	"/weir.v1.Cluster/CreateAccessToken": {role: access.Admin, port: AdminPort, changes: true},
	"/weir.v1.Cluster/ListAccessTokens":  {role: access.Admin, port: AdminPort},
	"/weir.v1.Cluster/RevokeAccessToken": {role: access.Admin, port: AdminPort, changes: true},

	"/weir.peer.v1.Peer/Heartbeat":       {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Peer/GetView":         {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Peer/ListTopKeys":     {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Peer/ListEvents":      {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Peer/StreamDecisions": {role: access.Peer, port: PublicPort},

	"/weir.peer.v1.Replicas/Feed":         {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Replicas/RelayFeed":    {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Replicas/Post":         {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Replicas/Hear":         {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Replicas/Ask":          {role: access.Peer, port: PublicPort},
	"/weir.peer.v1.Replicas/ListVersions": {role: access.Peer, port: PublicPort},

	"/grpc.health.v1.Health/Check": {role: access.Public},
	"/grpc.health.v1.Health/List":  {role: access.Public},
	"/grpc.health.v1.Health/Watch": {role: access.Public},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {role: access.Check},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {role: access.Check},

	"POST /v1/check":               {role: access.Check, port: PublicPort, quick: true},
	"POST /v1/check:batch":         {role: access.Check, port: PublicPort, quick: true},
	"POST /v1/status":              {role: access.Check},
	"POST /v1/explain":             {role: access.Check},
	"POST /v1/descriptors:explain": {role: access.Check},
	"/auth":                        {role: access.Check, port: PublicPort, quick: true},
	"/auth/{domain}":               {role: access.Check, port: PublicPort, quick: true},
	"POST /json":                   {role: access.Check, port: PublicPort, quick: true},

	"GET /v1/rules":                     {role: access.Rules},
	"POST /v1/rules":                    {role: access.Rules, port: AdminPort, changes: true},
	"GET /v1/rules:watch":               {role: access.Rules},
	"/v1/rules:apply":                   {role: access.Rules, port: AdminPort, changes: true},
	"GET /v1/rules/{domain}/{id...}":    {role: access.Rules},
	"PUT /v1/rules/{domain}/{id...}":    {role: access.Rules, port: AdminPort, changes: true},
	"DELETE /v1/rules/{domain}/{id...}": {role: access.Rules, port: AdminPort, changes: true},
	"GET /rlconfig":                     {role: access.Rules},

	"GET /v1/health":              {role: access.Check},
	"GET /v1/nodes":               {role: access.Check},
	"GET /v1/ring":                {role: access.Admin, port: AdminPort},
	"GET /v1/options":             {role: access.Admin, port: AdminPort},
	"GET /v1/top":                 {role: access.Rules, port: AdminPort},
	"POST /v1/descriptors:reset":  {role: access.Admin, port: AdminPort, changes: true},
	"POST /v1/reset":              {role: access.Admin, port: AdminPort, changes: true},
	"POST /v1/view:import":        {role: access.Admin, port: AdminPort, changes: true},
	"DELETE /v1/nodes/{node_id}":  {role: access.Admin, port: AdminPort, changes: true},
	"POST /v1/nodes/{node_drain}": {role: access.Admin, port: AdminPort, changes: true},

	"GET /ui":                               {role: access.Public, port: AdminPort},
	"GET /ui/{$}":                           {role: access.Metrics, port: AdminPort},
	"GET /ui/live":                          {role: access.Metrics, port: AdminPort},
	"GET /ui/rules":                         {role: access.Rules, port: AdminPort},
	"GET /ui/rules/{domain}/{id...}":        {role: access.Rules, port: AdminPort},
	"GET /ui/new-rule":                      {role: access.Rules, port: AdminPort},
	"GET /ui/edit-rule/{domain}/{id...}":    {role: access.Rules, port: AdminPort},
	"POST /ui/check-rule":                   {role: access.Rules, port: AdminPort},
	"POST /ui/save-rule":                    {role: access.Rules, port: AdminPort, changes: true},
	"POST /ui/change-rule/{domain}/{id...}": {role: access.Rules, port: AdminPort, changes: true},
	"GET /ui/history":                       {role: access.Rules, port: AdminPort},
	"GET /ui/history/{revision}":            {role: access.Rules, port: AdminPort},
	"POST /ui/history/{revision}":           {role: access.Rules, port: AdminPort, changes: true},
	"GET /ui/inspect":                       {role: access.Check, port: AdminPort},
	"POST /ui/reset":                        {role: access.Admin, port: AdminPort, changes: true},
	"GET /ui/ring":                          {role: access.Admin, port: AdminPort},
	"GET /ui/events":                        {role: access.Admin, port: AdminPort},
	"GET /ui/top":                           {role: access.Rules, port: AdminPort},
	"GET /ui/backtest":                      {role: access.Rules, port: AdminPort},
	"POST /ui/backtest":                     {role: access.Rules, port: AdminPort},
	"GET /ui/new-fields":                    {role: access.Rules, port: AdminPort},
	"GET /ui/edit-fields/{domain}/{id...}":  {role: access.Rules, port: AdminPort},
	"GET /ui/static/{file}":                 {role: access.Public, port: AdminPort},
	"GET /ui/sign-in":                       {role: access.Public, port: AdminPort},
	"POST /ui/sign-in":                      {role: access.Public, port: AdminPort},
	"POST /ui/sign-out":                     {role: access.Public, port: AdminPort},
	"GET /metrics":                          {role: access.Metrics, port: AdminPort},
	"/debug/pprof/":                         {role: access.Admin, port: AdminPort},
	"GET /openapi.json":                     {role: access.Public},
	"GET /healthz":                          {role: access.Public},
	"GET /readyz":                           {role: access.Public},
	"GET /healthcheck":                      {role: access.Public},
}

// uiPath begins the paths of the dashboard.
const uiPath = "/ui/"

// authHeader is where /auth expects a token: Authorization is of the proxy's client there.
const authHeader = "Weir-Authorization"

// Access says which callers may make which calls, and at which port. A nil *Access permits all.
type Access struct {
	// Port is the port that calls come in at.
	Port Port
	// Tokens are the tokens in force. Nil, as without TLS, permits all callers what the port serves.
	Tokens *access.Tokens
	// Store changes the tokens of the cluster. Nil: they cannot be changed.
	Store AccessTokenStore
	// Certificate returns the caller of a connection over HTTP, nil if it has shown no certificate.
	Certificate func(*tls.ConnectionState) *access.Principal
	// Audit names changes that were denied; nil is none.
	Audit *audit.Log
}

// At returns the same permissions at another port.
func (a *Access) At(p Port) *Access {
	var at Access
	if a != nil {
		at = *a
	}
	at.Port = p
	return &at
}

// store returns what changes the tokens of the cluster, nil if nothing does.
func (a *Access) store() AccessTokenStore {
	if a == nil {
		return nil
	}
	return a.Store
}

// port returns the port that calls come in at.
func (a *Access) port() Port {
	if a == nil {
		return AnyPort
	}
	return a.Port
}

// isOpen reports whether all callers may make all calls.
func (a *Access) isOpen() bool { return a == nil || a.Port == AnyPort && a.Tokens == nil }

// Tap refuses gRPC calls that their caller may not make, before they are read, and has next accept the others.
// It is for grpc.InTapHandle.
func (a *Access) Tap(next tap.ServerInHandle) tap.ServerInHandle {
	if a.isOpen() {
		return next
	}
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		ctx, err := a.admit(ctx, call.FullMethodName, certificateOf(ctx), call.Header["authorization"])
		if err != nil {
			return ctx, access.StatusOf(err)
		}
		return next(ctx, call)
	}
}

// RoleOf returns the role that a gRPC method needs, or a pattern of a path over HTTP, and whether that is known.
func RoleOf(call string) (access.Role, bool) {
	n, known := needs[call]
	return n.role, known
}

// neededBy returns what a gRPC method needs, or a pattern of a path.
func neededBy(call string) need {
	if n, known := needs[call]; known {
		return n
	}
	return need{role: access.Admin, port: AdminPort}
}

// certificateOf returns the caller that the certificate of a gRPC connection names, nil if there is none.
func certificateOf(ctx context.Context) *access.Principal {
	p, found := peer.FromContext(ctx)
	if !found {
		return nil
	}
	for info := p.AuthInfo; info != nil; {
		if named, ok := info.(interface{ Principal() *access.Principal }); ok {
			return named.Principal()
		}
		wrapped, ok := info.(interface{ Unwrap() credentials.AuthInfo })
		if !ok {
			return nil
		}
		info = wrapped.Unwrap()
	}
	return nil
}

// admit returns the context of a call, which has its caller also if that may not make it. The error is an *access.Denial, or the
// status of a call that this port does not serve.
func (a *Access) admit(ctx context.Context, call string, certificate *access.Principal, authorization []string) (context.Context, error) {
	if a.isOpen() {
		return ctx, nil
	}
	n := neededBy(call)
	if !a.Port.serves(n.port) {
		return ctx, a.Port.refusal()
	}
	if n.role == access.Public || a.Tokens == nil {
		return ctx, nil
	}
	p, err := a.Tokens.Caller(certificate, authorization)
	if err == nil {
		err = p.Has(n.role)
	}
	if err != nil {
		a.auditedDenial(ctx, n, p, call, err)
		if d, ok := errors.AsType[*access.Denial](err); ok && !d.Known {
			err = &access.Denial{Reason: d.Reason + `; this call needs the role "` + n.role.String() + `"`}
		}
		if p != nil {
			ctx = access.With(ctx, p)
		}
		return ctx, err
	}
	if n.quick && p.Everywhere(n.role) {
		return ctx, nil
	}
	return access.With(ctx, p), nil
}

// connCaller is the caller of an HTTP connection. Its principal is read from the certificate once.
type connCaller struct {
	remote    string // its address
	domains   overload.Conn
	once      sync.Once
	principal *access.Principal
}

type connCallerKey struct{}

// connContext is for http.Server.ConnContext.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connCallerKey{}, &connCaller{remote: conn.RemoteAddr().String()})
}

// certificate returns the caller that the certificate of r's connection names, nil if there is none.
func (a *Access) certificate(r *http.Request) *access.Principal {
	if a == nil || a.Certificate == nil {
		return nil
	}
	c, ok := r.Context().Value(connCallerKey{}).(*connCaller)
	if !ok {
		return a.Certificate(r.TLS)
	}
	c.once.Do(func() { c.principal = a.Certificate(r.TLS) })
	return c.principal
}

// Protect returns a handler that passes on the requests that their callers may make, and answers the rest with
// a 401 or 403, or with a 404 if this port does not serve them. Page, which may be nil, answers those for the dashboard.
func (a *Access) Protect(next http.Handler, page Dashboard) http.Handler {
	if a.isOpen() {
		return next
	}
	paths := http.NewServeMux()
	for pattern := range needs {
		if !isMethod(pattern) {
			paths.Handle(pattern, http.NotFoundHandler())
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasExpired(w, r) {
			refuseDenied(w, errExpired)
			return
		}
		_, pattern := paths.Handler(r)
		header := "Authorization"
		if strings.HasPrefix(pattern, "/auth") {
			header = authHeader
		}
		authorization, ui := r.Header[header], strings.HasPrefix(r.URL.Path, uiPath)
		if ui && len(authorization) == 0 {
			authorization = a.authorizationOfCookie(r)
		}
		ctx, err := a.admit(r.Context(), pattern, a.certificate(r), authorization)
		if err != nil {
			if page != nil && ui {
				if d, denied := errors.AsType[*access.Denial](err); denied {
					page.Refuse(w, r.WithContext(ctx), d.Known, d.Reason)
					return
				}
			}
			refuseDenied(w, err)
			return
		}
		if ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// errExpired refuses requests whose client's certificate has expired.
var errExpired = &access.Denial{Reason: "the client's certificate has expired since it connected"}

// hasExpired reports whether the certificate of r's client has expired since it connected. If it has, the connection
// ends with the answer, so that the client shows the certificate that it has now.
func hasExpired(w http.ResponseWriter, r *http.Request) bool {
	expired := r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && time.Now().After(r.TLS.PeerCertificates[0].NotAfter)
	if expired {
		w.Header().Set("Connection", "close")
	}
	return expired
}

// isMethod reports whether a key of needs is a gRPC method, and not a path over HTTP.
func isMethod(key string) bool { return strings.HasPrefix(key, "/") && strings.Contains(key, ".v") }

// refuseDenied answers with the problem that err of admit is.
func refuseDenied(w http.ResponseWriter, err error) {
	code, detail := http.StatusForbidden, err.Error()
	d, denied := errors.AsType[*access.Denial](err)
	switch {
	case !denied: // as an unknown path
		code, detail = http.StatusNotFound, status.Convert(err).Message()
	case !d.Known:
		code = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	headers.Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: detail}.Write(w)
}

// mayRead refuses to read the rules of a domain, or of all if it is empty, to callers without the role.
func mayRead(ctx context.Context, domain string) error {
	if domain == "" {
		return access.StatusOf(access.All(ctx, access.Rules))
	}
	return mayChange(ctx, domain)
}

// mayChange refuses changes of the rules of a domain to callers without the role.
func mayChange(ctx context.Context, domain string) error {
	return access.StatusOf(access.In(ctx, access.Rules, cmp.Or(domain, DefaultDomain)))
}

// revoked returns a channel that is closed when the caller's token is revoked, or nil.
func revoked(ctx context.Context) <-chan struct{} {
	if p := access.From(ctx); p != nil {
		return p.Revoked()
	}
	return nil
}
