package ui

import (
	"net/http"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// signInBody is the form.
type signInBody struct{ To, Problem string }

// target returns the page to go to, which is one of this dashboard.
func target(to string) string {
	if at, _, _ := strings.Cut(to, "?"); !strings.HasPrefix(at, "/ui/") || path.Clean(at) != strings.TrimSuffix(at, "/") || strings.ContainsAny(to, "\\\r\n") {
		return "/ui/"
	}
	return to
}

func (s *Server) askToken(w http.ResponseWriter, r *http.Request) {
	if !s.cfg.Secure {
		http.Redirect(w, r, "/ui/", http.StatusSeeOther)
		return
	}
	s.render(w, r, http.StatusOK, "signin", "Sign in", "", signInBody{To: target(r.URL.Query().Get("to"))})
}

// signIn puts a token into a cookie, which no script reads and which browsers show to this server's dashboard only, for pages of its own.
// Requests of pages of other origins do not come here: the guard refuses them.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	if !s.cfg.Secure {
		s.fail(w, r, status.Error(codes.FailedPrecondition, "this node has no TLS: there is nothing to sign in to"))
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	body := signInBody{To: target(r.PostFormValue("to"))}
	if err := s.cfg.CheckToken(token); err != nil {
		body.Problem = "This token is unknown or was revoked."
		s.render(w, r, http.StatusUnauthorized, "signin", "Sign in", "", body)
		return
	}
	http.SetCookie(w, s.cookie(token, 0))
	http.Redirect(w, r, body.To, http.StatusSeeOther)
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.cookie("", -1))
	http.Redirect(w, r, "/ui/sign-in", http.StatusSeeOther)
}

// cookie returns the cookie of a token. It ends with the browser's session, or at once if its age is negative.
//
// It is Lax, not Strict: a browser that follows a link from a chat or an alert sends no Strict cookie, and its user would have to
// sign in again each time. Lax sends it with such a GET, which changes nothing here. With requests that pages of other sites make
// otherwise, above all POST, a browser does not send it, and the guard refuses these anyway by their Sec-Fetch-Site and Origin.
func (s *Server) cookie(token string, age int) *http.Cookie {
	return &http.Cookie{Name: s.cfg.Cookie, Value: token, Path: "/ui/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}
