/* SPDX-License-Identifier: MIT */
#include "report_vary.h"

#include <stdarg.h>
#include <stdio.h>

#include "perf_show.h"

bool vary_is_shown(const struct perf_result *result, unsigned kind)
{
	return result->c.kind == kind && !*result->failure;
}

uint64_t vary_value(const struct perf_case *c, enum vary vary)
{
	switch (vary) {
	case VARY_LANES:
		return c->lanes;
	case VARY_DEPTH:
		return c->depth;
	case VARY_FRAGMENT:
		return c->fragment;
	case VARY_OP:
		return c->op;
	case VARY_SCHEME:
		return c->scheme;
	default:
		return c->size;
	}
}

bool vary_is_word(enum vary vary)
{
	return vary == VARY_OP || vary == VARY_SCHEME;
}

struct vary_values vary_values_of(const struct report *report, unsigned kind,
				  enum vary vary)
{
	struct vary_values values = { 0 };

	for (int i = 0; i < report->count; i++) {
		uint64_t value = vary_value(&report->result[i].c, vary);
		unsigned at = 0;

		if (!vary_is_shown(&report->result[i], kind))
			continue;
		while (at < values.count && values.value[at] != value)
			at++;
		if (at == values.count && at < VARY_VALUES)
			values.value[values.count++] = value;
	}
	return values;
}

enum vary vary_choose(const struct report *report, unsigned kind, bool lanes_first)
{
	enum vary best = lanes_first ? VARY_LANES : VARY_SIZE;
	unsigned most = 1;

	for (enum vary vary = VARY_SIZE; vary < VARY_COUNT; vary++) {
		struct vary_values values = vary_values_of(report, kind, vary);

		/* The size of fragments that the library chooses is not known. */
		for (unsigned i = 0; i < values.count && vary == VARY_FRAGMENT; i++)
			if (!values.value[i])
				values.count = 1;
		if (values.count > most) {
			most = values.count;
			best = vary;
		}
	}
	return best;
}

static struct perf_case case_without(const struct perf_case *c, enum vary vary)
{
	struct perf_case rest = *c;

	switch (vary) {
	case VARY_LANES:
		rest.lanes = 0;
		break;
	case VARY_DEPTH: /* which limits the batch */
		rest.depth = rest.batch = 0;
		break;
	case VARY_FRAGMENT:
		rest.fragment = 0;
		break;
	case VARY_OP:
		rest.op = 0;
		break;
	case VARY_SCHEME:
		rest.scheme = 0;
		break;
	default:
		rest.size = 0;
	}
	return rest;
}

bool vary_same_series(const struct perf_case *a, const struct perf_case *b,
		      enum vary vary)
{
	struct perf_case ours = case_without(a, vary), theirs = case_without(b, vary);

	return perf_same_series(&ours, &theirs) && ours.size == theirs.size;
}

const char *vary_axis(enum vary vary)
{
	static const char *const axis[] = {
		"message size, bytes", "lanes",	    "depth",
		"fragment, bytes",     "operation", "scheme"
	};

	return axis[vary];
}

const char *vary_noun(enum vary vary)
{
	static const char *const noun[] = {
		"message size",	 "number of lanes", "depth",
		"fragment size", "operation",	    "scheme"
	};

	return noun[vary];
}

void vary_text(char *buffer, size_t size, enum vary vary, uint64_t value)
{
	char text[PERF_SIZE_TEXT];

	if (vary == VARY_OP)
		snprintf(buffer, size, "%s", perf_op_name((unsigned)value));
	else if (vary == VARY_SCHEME)
		snprintf(buffer, size, "%s", perf_scheme_name((unsigned)value));
	else
		snprintf(buffer, size, "%s", perf_size_text(text, value));
}

struct label {
	char *text;
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void add_to_label(struct label *label,
							       const char *format, ...)
{
	va_list args;

	if (label->used && label->used < VARY_LABEL)
		label->used += (size_t)snprintf(label->text + label->used,
						VARY_LABEL - label->used, ", ");
	if (label->used >= VARY_LABEL)
		return;
	va_start(args, format);
	label->used += (size_t)vsnprintf(label->text + label->used,
					 VARY_LABEL - label->used, format, args);
	va_end(args);
}

const char *vary_label(char *buffer, const struct perf_case *c, enum vary vary)
{
	struct label label = { .text = buffer };
	char text[PERF_SIZE_TEXT];

	*buffer = '\0';
	if (vary != VARY_OP)
		add_to_label(&label, "%s", perf_op_name(c->op));
	if (vary != VARY_SIZE)
		add_to_label(&label, "%s", perf_size_text(text, c->size));
	if (c->bidirectional)
		add_to_label(&label, "both directions");
	if (vary != VARY_LANES)
		add_to_label(&label, "%u lane%s", c->lanes, c->lanes > 1 ? "s" : "");
	if (vary != VARY_SCHEME && (c->lanes > 1 || vary == VARY_LANES))
		add_to_label(&label, "%s", perf_scheme_name(c->scheme));
	if (vary != VARY_DEPTH && c->kind != PERF_LATENCY)
		add_to_label(&label, "depth %u", c->depth);
	if (vary != VARY_DEPTH && c->batch > 1)
		add_to_label(&label, "batch %u", c->batch);
	if (vary != VARY_FRAGMENT && c->fragment)
		add_to_label(&label, "fragments of %s",
			     perf_size_text(text, c->fragment));
	return buffer;
}
