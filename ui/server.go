package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

//go:embed static/*.js static/*.css static/*.svg
var staticFiles embed.FS

//go:embed templates/*.html
var templateFiles embed.FS

// policy lets a page use what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// callTimeout bounds the calls of one page.
const callTimeout = 5 * time.Second

// Config says what the pages show. Every field is required.
type Config struct {
	// API calls the public services within this process, as the caller of a request.
	API grpc.ClientConnInterface
	// Own is API without permissions, for what this server asks by itself: which nodes there are, and the revision of the rules.
	Own grpc.ClientConnInterface
	// Format returns rules as the text of a file.
	Format func([]*weirv1.RateLimit) (string, error)
	// RuleFile returns the rules in force, unless they are those of the revision seen.
	RuleFile func(seen int64) (file RuleFile, changed bool)
	// Loads are those of the nodes of the cluster.
	Loads func() []Load
	// Problems are those of this node at the moment.
	Problems func() []Problem
	// Caller returns the name of a request's caller, and how it is known; both are empty without TLS.
	Caller func(ctx context.Context) (name, proof string)
	// CheckToken returns an error unless a token is in force. The name of the cookie that has it is Cookie.
	CheckToken func(token string) error
	Cookie     string
	// HashedKeys says that the lists of keys have hashes in place of values.
	HashedKeys bool
	// Backtest replays a log, until the context ends. Its error has a status code.
	Backtest func(ctx context.Context, b Backtest) (*BacktestResult, error)
	// LastDecisions are those that the decision log of this node has of a request, the newest first.
	LastDecisions func(ctx context.Context, req *weirv1.RateLimitRequest) (Decisions, error)
	// OtherEvents asks the other nodes for theirs. Silent are the ids of those that have not answered.
	OtherEvents func(ctx context.Context) (events []Event, silent []string)
	// Secure says that the pages are served with TLS: callers sign in.
	Secure bool
	Logger *slog.Logger
}

// Server serves the pages at /ui/. It is safe for concurrent use; make it with New.
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	pages   map[string]*template.Template
	static  map[string]file // by name
	samples samples
	seen    seen
	history ruleHistory
	uploads chan struct{} // has room for maxUploads

	own       weirv1.ClusterClient // without permissions, as Config.Own
	ownHealth weirv1.RateLimiterHealthClient
	ownRules  weirv1.RateLimiterConfigClient

	checks weirv1.RateLimiterClient
	rules  weirv1.RateLimiterConfigClient
	health weirv1.RateLimiterHealthClient
	nodes  weirv1.ClusterClient
}

// file is a static file.
type file struct {
	content         []byte
	mediaType, etag string
}

// New returns the pages. It fails only if what is embedded cannot be read.
func New(cfg Config) (*Server, error) {
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), pages: make(map[string]*template.Template), static: make(map[string]file), uploads: make(chan struct{}, maxUploads),
		checks: weirv1.NewRateLimiterClient(cfg.API), rules: weirv1.NewRateLimiterConfigClient(cfg.API),
		health: weirv1.NewRateLimiterHealthClient(cfg.API), nodes: weirv1.NewClusterClient(cfg.API),
		own: weirv1.NewClusterClient(cfg.Own), ownHealth: weirv1.NewRateLimiterHealthClient(cfg.Own), ownRules: weirv1.NewRateLimiterConfigClient(cfg.Own),
	}
	if err := s.readStatic(); err != nil {
		return nil, err
	}
	if err := s.readPages(); err != nil {
		return nil, err
	}
	s.mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusSeeOther))
	s.mux.HandleFunc("GET /ui/{$}", s.overview)
	s.mux.HandleFunc("GET /ui/live", s.live)
	s.mux.HandleFunc("GET /ui/rules", s.listRules)
	s.mux.HandleFunc("GET /ui/rules/{domain}/{id...}", s.showRule)
	s.mux.HandleFunc("GET /ui/new-rule", s.askNewRule)
	s.mux.HandleFunc("GET /ui/edit-rule/{domain}/{id...}", s.askEdit)
	s.mux.HandleFunc("POST /ui/check-rule", s.checkRule)
	s.mux.HandleFunc("POST /ui/save-rule", s.saveRule)
	s.mux.HandleFunc("POST /ui/change-rule/{domain}/{id...}", s.changeRule)
	s.mux.HandleFunc("GET /ui/history", s.showHistory)
	s.mux.HandleFunc("GET /ui/history/{revision}", s.showRevision)
	s.mux.HandleFunc("POST /ui/history/{revision}", s.rollBack)
	s.mux.HandleFunc("GET /ui/inspect", s.inspect)
	s.mux.HandleFunc("POST /ui/reset", s.reset)
	s.mux.HandleFunc("GET /ui/ring", s.ring)
	s.mux.HandleFunc("GET /ui/events", s.events)
	s.mux.HandleFunc("GET /ui/top", s.top)
	s.mux.HandleFunc("GET /ui/backtest", s.askBacktest)
	s.mux.HandleFunc("POST /ui/backtest", s.backtest)
	s.mux.HandleFunc("GET /ui/new-fields", s.askNewFields)
	s.mux.HandleFunc("GET /ui/edit-fields/{domain}/{id...}", s.askFields)
	s.mux.HandleFunc("GET /ui/static/{file}", s.serveStatic)
	s.mux.HandleFunc("GET /ui/sign-in", s.askToken)
	s.mux.HandleFunc("POST /ui/sign-in", s.signIn)
	s.mux.HandleFunc("POST /ui/sign-out", s.signOut)
	return s, nil
}

// Run samples the loads and states of nodes, and the problems of this one, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	s.LookAtRules()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.samples.add(time.Now(), s.cfg.Loads())
		s.lookAtNodes(ctx)
		s.seen.lookAtProblems(time.Now(), s.cfg.Problems())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookAtNodes notes which nodes have come, gone or changed.
func (s *Server) lookAtNodes(ctx context.Context) {
	list, err := s.own.ListNodes(ctx, &weirv1.ListNodesRequest{})
	if err != nil {
		return // it does not fail
	}
	var states []State
	for _, n := range list.GetNodes() {
		word, tone, _ := stateOf(n)
		states = append(states, State{n.GetId(), word, tone, n.GetIncarnation()})
	}
	s.seen.look(time.Now(), states)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protectPage(w)
	most := callTimeout
	if r.Method == http.MethodPost && r.URL.Path == backtestPath {
		most = backtestTimeout
	}
	ctx, cancel := context.WithTimeout(r.Context(), most)
	defer cancel()
	s.mux.ServeHTTP(w, r.WithContext(ctx))
}

// protectPage sets the header fields that keep a page apart from others.
func protectPage(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (s *Server) readStatic() error {
	names, err := fs.Glob(staticFiles, "static/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		content, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		s.static[path.Base(name)] = file{content, mime.TypeByExtension(path.Ext(name)), `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return nil
}

func (s *Server) readPages() error {
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return err
	}
	for _, name := range names {
		page, err := template.New("").Funcs(functions).Funcs(template.FuncMap{"file": s.fileURL}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", name)
		if err != nil {
			return fmt.Errorf("template %s: %w", name, err)
		}
		s.pages[strings.TrimSuffix(path.Base(name), ".html")] = page
	}
	return nil
}

// fileURL returns the path of a static file, which its content is a part of: browsers keep it until it changes.
func (s *Server) fileURL(name string) string {
	return "/ui/static/" + name + "?v=" + strings.Trim(s.static[name].etag, `"`)
}

func (s *Server) serveStatic(w http.ResponseWriter, r *http.Request) {
	f, known := s.static[r.PathValue("file")]
	if !known {
		s.fail(w, r, status.Error(codes.NotFound, "there is no such file"))
		return
	}
	w.Header().Set("Content-Type", f.mediaType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}

// page is what all pages have.
type page struct {
	Title, Section string
	Caller, Proof  string
	Secure         bool
	Node           string // the asked one
	Now            time.Time
	Body           any
}

// render answers with a page.
func (s *Server) render(w http.ResponseWriter, r *http.Request, code int, name, title, section string, body any) {
	p := page{Title: title, Section: section, Secure: s.cfg.Secure, Now: time.Now(), Body: body}
	p.Caller, p.Proof = s.cfg.Caller(r.Context())
	var b bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&b, "layout", p); err != nil {
		s.cfg.Logger.Error("page of the dashboard not rendered", "page", name, "error", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a client that is gone does not matter
}

// renderPart answers with a part of a page, for one that is open.
func (s *Server) renderPart(w http.ResponseWriter, name, part string, body any) {
	var b bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&b, part, body); err != nil {
		s.cfg.Logger.Error("part of the dashboard not rendered", "page", name, "part", part, "error", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // a client that is gone does not matter
}

// message is the body of a page that says one thing.
type message struct{ Heading, Text string }

// fail answers with a page that says what the API has refused.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	st := status.Convert(err)
	m, code := message{"This did not work", st.Message()}, http.StatusInternalServerError
	switch st.Code() {
	case codes.NotFound:
		m.Heading, code = "Not found", http.StatusNotFound
	case codes.PermissionDenied:
		m.Heading, code = "Your role does not permit this", http.StatusForbidden
	case codes.Unauthenticated:
		m.Heading, code = "Sign in first", http.StatusUnauthorized
	case codes.InvalidArgument:
		m.Heading, code = "Not valid", http.StatusBadRequest
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		m.Heading, code = "No answer", http.StatusServiceUnavailable
	case codes.FailedPrecondition, codes.Aborted, codes.AlreadyExists:
		code = http.StatusConflict
	default:
	}
	if _, long := errors.AsType[*longFormError](err); long {
		m.Heading, code = "Too long", http.StatusRequestEntityTooLarge
	}
	s.render(w, r, code, "message", m.Heading, "", m)
}

// Refuse answers a request whose caller may not make it: callers that are not known sign in first.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, known bool, reason string) {
	protectPage(w)
	switch {
	case r.URL.Path == "/ui/live", r.URL.Query().Get("part") != "":
		http.Error(w, reason, http.StatusUnauthorized)
	case known:
		s.fail(w, r, status.Error(codes.PermissionDenied, reason))
	case r.Method == http.MethodGet:
		http.Redirect(w, r, "/ui/sign-in?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
	default:
		s.fail(w, r, status.Error(codes.Unauthenticated, reason))
	}
}
