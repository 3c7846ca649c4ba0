/* SPDX-License-Identifier: MIT */
#include "dev/select.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"

static int bad_entry(const struct snt__select *select, const char *text, size_t length,
		     const char *why)
{
	return snt__fail(EINVAL, "entry \"%.*s\" %s; in %s=\"%s\"", (int)length, text,
			 why, select->source.origin, select->source.text);
}

/* Ports are 1 to 255; anything else after the colon is an error. */
static int parse_port(const char *text, size_t length)
{
	int port = 0;

	if (length < 1 || length > 3)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		port = port * 10 + (text[i] - '0');
	}
	return port >= 1 && port <= UINT8_MAX ? port : -EINVAL;
}

static bool has_space(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (isspace((unsigned char)text[i]))
			return true;
	return false;
}

static int parse_name(const struct snt__select *select, struct snt__entry *entry,
		      const char *text, size_t length)
{
	const char *colon = memchr(text, ':', length);
	size_t name_length = colon ? (size_t)(colon - text) : length;
	int port = 0;

	if (colon)
		port = parse_port(colon + 1, length - name_length - 1);
	if (port < 0)
		return bad_entry(select, text, length,
				 "has no port from 1 to 255 after :");
	if (!name_length)
		return bad_entry(select, text, length, "has no name");
	if (name_length >= sizeof(entry->name))
		return bad_entry(select, text, length, "has a name that is too long");
	if (has_space(text, name_length))
		return bad_entry(select, text, length,
				 "has a space inside; spaces are allowed around "
				 "commas only");
	if (memchr(text, '=', name_length) || memchr(text, '^', name_length))
		return bad_entry(
			select, text, length,
			"has a mark inside its name; write ^=NAME, =NAME or ^NAME");
	memcpy(entry->name, text, name_length);
	entry->name[name_length] = '\0';
	entry->port = port;
	return 0;
}

/* Strips spaces from both ends of an entry. */
static void trim_spaces(const char **text, size_t *length)
{
	while (*length && isspace((unsigned char)**text)) {
		(*text)++;
		(*length)--;
	}
	while (*length && isspace((unsigned char)(*text)[*length - 1]))
		(*length)--;
}

/* One entry, with its marks; without any it takes those of the previous entry. */
static int parse_entry(const struct snt__select *select, struct snt__entry *entry,
		       const char *text, size_t length)
{
	const char *name = text;

	if (length && (*name == '^' || *name == '=')) {
		entry->exclude = *name == '^';
		name += entry->exclude;
		entry->exact = name < text + length && *name == '=';
		name += entry->exact;
	}
	return parse_name(select, entry, name, length - (name - text));
}

static int parse_list(struct snt__select *select, const char *text)
{
	struct snt__entry marks = { 0 };

	for (;; text++) {
		size_t list_length = strcspn(text, ","), length = list_length;
		const char *start = text;
		struct snt__entry *entry;
		int ret;

		if (select->count == SNT_DEVICE_LIST_MAX)
			return snt__fail(EINVAL, "%s has more than %d entries",
					 select->source.origin, SNT_DEVICE_LIST_MAX);
		trim_spaces(&start, &length);
		entry = &select->entry[select->count++];
		entry->exact = marks.exact;
		entry->exclude = marks.exclude;
		ret = parse_entry(select, entry, start, length);
		if (ret)
			return ret;
		marks = *entry;
		text += list_length;
		if (!*text)
			return 0;
	}
}

int snt__select_parse(struct snt__select *select, struct snt__value source)
{
	bool includes = false;
	int ret;

	memset(select, 0, sizeof(*select));
	select->source = source;
	ret = *source.text ? parse_list(select, source.text) : 0;
	if (ret)
		return ret;
	for (unsigned i = 0; i < select->count; i++)
		includes |= !select->entry[i].exclude;
	select->count += !includes;
	return 0;
}

static bool name_matches(const struct snt__entry *entry, const char *name)
{
	if (entry->exact)
		return !strcmp(entry->name, name);
	return !strncmp(entry->name, name, strlen(entry->name));
}

bool snt__select_name(struct snt__select *select, const char *name)
{
	bool included = false, excluded = false;

	for (unsigned i = 0; i < select->count; i++) {
		struct snt__entry *entry = &select->entry[i];

		if (!name_matches(entry, name))
			continue;
		entry->names_seen++;
		included |= !entry->exclude;
		excluded |= entry->exclude && !entry->port;
	}
	if (!included || excluded)
		return false;
	for (unsigned i = 0; i < select->count; i++)
		select->entry[i].names_open += name_matches(&select->entry[i], name);
	return true;
}

int snt__select_port(struct snt__select *select, const char *name, uint8_t port,
		     struct snt__entry **entry_out)
{
	struct snt__entry *by = NULL, *again = NULL;
	char text[2][SNT__ENTRY_TEXT];
	bool excluded = false;

	for (unsigned i = 0; i < select->count; i++) {
		struct snt__entry *entry = &select->entry[i];

		if (!name_matches(entry, name) || (entry->port && entry->port != port))
			continue;
		entry->ports_seen++;
		if (entry->exclude)
			excluded = true;
		else if (!by)
			by = entry;
		else
			again = entry;
	}
	if (excluded || !by)
		return 0;
	if (again)
		return snt__fail(
			EEXIST,
			"port %u of %s is selected twice, by \"%s\" and by \"%s\"; "
			"remove one; from %s=\"%s\"",
			port, name, snt__entry_text(by, text[0]),
			snt__entry_text(again, text[1]), select->source.origin,
			select->source.text);
	*entry_out = by;
	return 1;
}

bool snt__select_is_strict(const struct snt__entry *entry)
{
	return entry->exact || entry->port;
}

const char *snt__entry_text(const struct snt__entry *entry, char *buffer)
{
	int length =
		snprintf(buffer, SNT__ENTRY_TEXT, "%s%s%s", entry->exclude ? "^" : "",
			 entry->exact ? "=" : "", entry->name);

	if (entry->port)
		snprintf(buffer + length, SNT__ENTRY_TEXT - length, ":%u", entry->port);
	return buffer;
}
