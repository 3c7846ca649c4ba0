/* SPDX-License-Identifier: MIT */
#ifndef TOOL_REPORT_PAGE_H
#define TOOL_REPORT_PAGE_H

/* What every report begins with: light and dark, wide and narrow, screen and paper. */
static const char report_style[] =
	":root{--bg:#fff;--fg:#1c2024;--dim:#5d6670;--line:#e3e6ea;--card:#f6f7f9;"
	"--c0:#0b65b8;--c1:#d1480c;--c2:#0a7f5d;--c3:#a3266e;--c4:#8a6a00;--c5:#5546b8;"
	"--c6:#3d7a9a;--c7:#7a4a2a}"
	"@media screen and (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;"
	"--dim:#9aa4ae;"
	"--line:#2b3036;--card:#1c2024;--c0:#58a9f0;--c1:#ff8a4f;--c2:#3fc79a;--c3:#ee7dbb;"
	"--c4:#dcb53a;--c5:#a99bff;--c6:#7fc4e6;--c7:#d3a27c}}"
	"*{box-sizing:border-box}"
	"body{margin:0 auto;max-width:1180px;padding:1.2rem 1rem 3rem;background:var(--bg);"
	"color:var(--fg);font:16px/1.5 system-ui,sans-serif}"
	"h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.1rem;margin:0 0 .4rem}"
	"p{margin:.3rem 0}.dim{color:var(--dim);font-size:.9rem}"
	".note{border-left:4px solid var(--c1);padding:.2rem .8rem;margin:.8rem 0}"
	"code{font:.85rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere}"
	".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));"
	"gap:.8rem;margin:1.2rem 0}"
	".cards div{background:var(--card);border-radius:8px;padding:.7rem .9rem}"
	".cards b{display:block;font-size:1.45rem;line-height:1.2}"
	".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));"
	"gap:1.2rem;margin:1.2rem 0}"
	"section{border:1px solid var(--line);border-radius:8px;padding:.9rem;min-width:0;"
	"break-inside:avoid}"
	"svg{width:100%;height:auto;display:block}"
	"svg text{font-size:13px;fill:var(--dim)}.e{text-anchor:end}.m{text-anchor:middle}"
	"svg .t{fill:var(--fg)}.g{stroke:var(--line);fill:none}"
	".legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding:0;"
	"margin:.5rem 0 0;font-size:.9rem}"
	".key{display:inline-block;width:14px;height:14px;margin-right:.35rem;"
	"vertical-align:-2px}"
	".series th{padding-top:.8rem;color:var(--fg);text-align:left}"
	".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem;"
	"font-variant-numeric:tabular-nums}"
	"th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);"
	"white-space:nowrap}th:first-child,td:first-child{text-align:left}"
	"th{font-weight:600;color:var(--dim)}caption{text-align:left;padding:.3rem 0;"
	"font-weight:600}.bad{color:var(--c1);font-weight:600}"
	"[class*=' l'],[class^=l]{fill:none;stroke-width:2;stroke-linejoin:round}"
	".s{stroke-width:1;stroke-dasharray:4 3;opacity:.8}.a{opacity:.85;stroke:var(--bg);"
	"stroke-width:.5}"
	".l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}"
	".l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}"
	".f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}"
	".f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}"
	/* Nothing can be scrolled on paper: letters are smaller there, but those of plots
	 * are not, and no row is torn from its heading. */
	"@media print{html{font-size:8.5pt}body{max-width:none;padding:0;font-size:1rem}"
	".plots{grid-template-columns:1fr 1fr;gap:.8rem}svg text{font-size:15px}"
	".cards div{border:1px solid #bbb}section{border-color:#bbb}"
	"section:has(.wide){break-inside:auto}.wide{overflow:visible}"
	"th,td{padding:.15rem .35rem}tr{break-inside:avoid}.series{break-after:avoid}}";

#endif
