/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SELECT_H
#define SNT_DEV_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include <sennit/ctx.h>

#include "util/setting.h"

/*
 * A parsed device list, with the syntax that sennit/ctx.h describes. Pure: it
 * decides about names and ports and keeps the tally by which, in the end, an
 * entry that selected nothing is told from one that did its job.
 */

#define SNT__DEVICE_NAME 64 /* bytes of a device's name, with its NUL */

struct snt__entry {
	char name[SNT__DEVICE_NAME];
	uint8_t port; /* 0: all ports */
	bool exact;
	bool exclude;
	/* The tally. */
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
	/* One more than the list may have: without any inclusion in it, the
	 * prefix "", which matches all, stands at the end. */
	struct snt__entry entry[SNT_DEVICE_LIST_MAX + 1];
};

/* 0, or -EINVAL with a sentence that quotes the entry. */
int snt__select_parse(struct snt__select *select, struct snt__value source);

/* Could a port of this device be selected? Tallies the name. */
bool snt__select_name(struct snt__select *select, const char *name);

/* Is this port selected? 1, with the entry that does; 0; or -EEXIST if two
 * entries select it. Tallies the port. */
int snt__select_port(struct snt__select *select, const char *name, uint8_t port,
		     struct snt__entry **entry_out);

/* Must a port which this entry selects be active, rather than may be? */
bool snt__select_is_strict(const struct snt__entry *entry);

/* "=mlx5_0:1", as one would type it. */
#define SNT__ENTRY_TEXT (SNT__DEVICE_NAME + 8)
const char *snt__entry_text(const struct snt__entry *entry, char *buffer);

#endif
