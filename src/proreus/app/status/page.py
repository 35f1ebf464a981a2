"""Render the state as a page, which fetches /status.json again and again. Pure.

The page needs nothing from elsewhere, and writes what it was given as text only: names and messages
come from tenants and clouds. Of long tables it shows the first rows and finds the others by name.
"""

from typing import Final

ROWS: Final = 200
"""How many rows of a table are shown at once."""
WELL: Final = 20
"""How many of these rows show objects that are well, unless somebody searches for them."""

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'"
)


def html(nonce: str) -> str:
    """Render the page; `nonce` is that of its Content-Security-Policy."""
    return _PAGE.replace("@NONCE@", nonce).replace("@ROWS@", str(ROWS)).replace("@WELL@", str(WELL))


_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Proreus</title>
<style nonce="@NONCE@">
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 1px solid; }
td.message { overflow-wrap: anywhere; max-width: 32rem; }
.ready { color: #2a7d46; } .warning, .shut { color: #a15c00; }
.waiting, .not, .deleting { color: #b3261e; }
input { font: inherit; padding: .2rem .5rem; width: 20rem; }
.quiet { opacity: .7; }
</style>
</head>
<body>
<h1 id="title">Proreus</h1>
<p id="leases" class="quiet"></p>
<p><input id="find" placeholder="find by name, zone, reason, ..." aria-label="find"></p>
<h2 id="nodes-title">Nodes</h2>
<table id="nodes"></table>
<h2 id="services-title">Services</h2>
<table id="services"></table>
<h2>Deletions, cloud, leaks</h2>
<p id="deletions"></p>
<p id="cloud"></p>
<table id="leaks"></table>
<script nonce="@NONCE@">
"use strict";
const ROWS = @ROWS@, WELL = @WELL@;
const COLUMNS = ["name", "state", "age", "cloud", "zone", "detail", "routes", "reason", "message"];
let state = null;
const at = (id) => document.getElementById(id);
function span(seconds) {
  const s = Math.floor(seconds);
  if (s < 120) return s + "s";
  if (s < 7200) return Math.floor(s / 60) + "m";
  if (s < 172800) return Math.floor(s / 3600) + "h";
  return Math.floor(s / 86400) + "d";
}
function cell(row, text, kind, name) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (name) made.className = name;
  row.appendChild(made);
}
function figures(rows) {
  const found = {};
  for (const row of rows) found[row.state] = (found[row.state] || 0) + 1;
  return Object.entries(found).map(([state, count]) => count + " " + state).join(", ");
}
function fill(id, title, rows) {
  const wanted = at("find").value.toLowerCase();
  const fits = rows.filter((row) => COLUMNS.some(
    (name) => String(row[name] || "").toLowerCase().includes(wanted)));
  const used = COLUMNS.filter((name) => fits.some((row) => row[name]));
  const table = at(id);
  table.replaceChildren();
  at(id + "-title").textContent = title + ": " + rows.length + " (" + figures(rows) + ")";
  const ill = fits.filter((row) => row.state !== "ready").length;
  const limit = wanted ? ROWS : Math.min(ROWS, ill + WELL);
  const head = table.insertRow();
  for (const name of used) cell(head, name, "th");
  for (const row of fits.slice(0, limit)) {
    const line = table.insertRow();
    for (const name of used) {
      const text = name === "age" ? span(row.age) : row[name];
      cell(line, text, "td", name === "state" ? row.state.split(" ")[0] : name);
    }
  }
  if (fits.length > limit) {
    const line = table.insertRow();
    cell(line, "and " + (fits.length - limit) + " more: find them by name", "td", "quiet");
  }
}
function show() {
  at("title").textContent = "Proreus: " + (state.cluster || "cluster");
  at("leases").textContent = state.leases.map((one) => one.name + ": " + (one.holder || "nobody")
    + ", renewed " + span(one.renewed) + " ago").join("; ") + " (" + state.at + ")";
  fill("nodes", "Nodes", state.nodes);
  fill("services", "Services", state.services);
  const inside = state.inside;
  at("leaks").replaceChildren();
  if (!inside) { at("deletions").textContent = "This replica does not lead."; return; }
  at("deletions").textContent = "Nodes that look gone: " + inside.deletions.waiting
    + " wait for more answers, " + inside.deletions.held + " held by the breaker, "
    + inside.deletions.unproven + " without proof."
    + (inside.deletions.unknown.length ? " Ready, but unknown to the cloud: "
      + inside.deletions.unknown.join(", ") : "");
  const calls = Object.entries(inside.cloud.calls).map(([code, n]) => n + " " + code).join(", ");
  const rates = Object.entries(inside.cloud.rates)
    .map(([name, rate]) => name + " " + rate.toFixed(1) + "/s").join(", ");
  at("cloud").textContent = "Cloud calls: " + (calls || "none") + "; " + inside.cloud.waiting
    + " wait; learned quota: " + (rates || "none") + ". Objects left over: " + inside.leaks.length;
  for (const one of inside.leaks.slice(0, ROWS)) {
    const line = at("leaks").insertRow();
    for (const text of [one.kind, one.id, one.service, one.since]) cell(line, text, "td");
  }
}
async function look() {
  try {
    const answer = await fetch("status.json", {cache: "no-store"});
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    state = await answer.json();
    show();
  } catch (error) {
    at("leases").textContent = "The manager does not answer: " + error.message;
  }
  setTimeout(look, 3000);
}
at("find").addEventListener("input", () => state && show());
look();
</script>
</body>
</html>
"""
