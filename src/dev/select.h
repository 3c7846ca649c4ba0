/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SELECT_H
#define SNT_DEV_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include <sennit/ctx.h>

#include "util/setting.h"

/*
 * A parsed device list, with the syntax that sennit/ctx.h describes. It touches no
 * devices: it decides about names and ports, and counts matches, so that entries that
 * selected nothing can be reported.
 */

#define SNT__DEVICE_NAME 64 /* bytes of a device's name, with its NUL */

struct snt__entry {
	char name[SNT__DEVICE_NAME];
	uint8_t port; /* 0: all ports */
	bool exact;
	bool exclude;
	/* The counts of matches. */
	unsigned names_seen;
	unsigned names_open; /* of these, those not excluded as a whole */
	unsigned ports_seen;
	unsigned ports_taken;
	/* Why the last port was left out although selected, if one was. */
	int left_out;
	char left_out_text[192];
};

struct snt__select {
	struct snt__value source;
	unsigned count;
	/* One more than the list may have: if it has no inclusion, the prefix "", which
	 * matches all, is appended. */
	struct snt__entry entry[SNT_DEVICE_LIST_MAX + 1];
};

/* 0, or -EINVAL with a sentence that quotes the entry. */
int snt__select_parse(struct snt__select *select, struct snt__value source);

/* Could a port of this device be selected? Counts the name. */
bool snt__select_name(struct snt__select *select, const char *name);

/* Is this port selected? 1, with the entry that does; 0; or -EEXIST if two entries
 * select it. Counts the port. */
int snt__select_port(struct snt__select *select, const char *name, uint8_t port,
		     struct snt__entry **entry_out);

/* Must a port that this entry selects be active, or else opening fails? */
bool snt__select_is_strict(const struct snt__entry *entry);

/* "=mlx5_0:1", as in a list. */
#define SNT__ENTRY_TEXT (SNT__DEVICE_NAME + 8)
const char *snt__entry_text(const struct snt__entry *entry, char *buffer);

#endif
