/* SPDX-License-Identifier: MIT */
#include "perf_local.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "sysfs.h"

/*
 * 1.07 s. The library's retries end after 1.8 s, but on a busy host either end may be without a
 * processor for longer: both are in one session, which Linux schedules as a group (autogroup), and
 * while one end spins on its processor, hardly any of the group's share is left for the other end
 * on another processor. These retries take as long as perf itself waits for the other end. A server
 * that is gone is noticed anyway, by its socket.
 */
#define SOFT_TIMEOUT 18

static void note_port(void *arg, const char *name, unsigned port, const char *state)
{
	(void)name, (void)port, (void)state;
	*(bool *)arg = true;
}

/* As the library will decide: will it use only soft devices? */
static bool takes_soft(const struct context_opts *all)
{
	const char *setting = secure_getenv("SENNIT_SOFT");
	bool has_port = false;

	if (all->soft)
		setting = all->soft == SNT_SOFT_ONLY	? "only"
			  : all->soft == SNT_SOFT_NEVER ? "never"
							: "auto";
	if (setting && *setting && strcmp(setting, "auto"))
		return !strcmp(setting, "only");
	sysfs_each_port(note_port, &has_port);
	return !has_port;
}

uint8_t perf_local_timeout(const struct context_opts *all)
{
	return takes_soft(all) ? SOFT_TIMEOUT : 0;
}

/* Cuts the list after its first @count entries. */
static int cut_address_list(const char *list, unsigned count, char *halves[2])
{
	size_t length = strcspn(list, ",");

	while (--count)
		length += 1 + strcspn(list + length + 1, ",");
	halves[0] = strndup(list, length);
	halves[1] = strdup(list + length + 1);
	return halves[0] && halves[1] ? STATUS_OK
				      : output_failed(NULL, "out of memory");
}

static const char *next_entry(const char *entry)
{
	entry += strcspn(entry, ",");
	return *entry ? entry + 1 : entry;
}

static bool has_entry(const char *list, const char *entry)
{
	size_t length = strcspn(entry, ",");

	for (; *list; list = next_entry(list))
		if (strcspn(list, ",") == length && !memcmp(list, entry, length))
			return true;
	return false;
}

/* Either end would be told that the other has it. */
static int check_once(const char *list, bool by_option)
{
	for (const char *at = list; *at; at = next_entry(at))
		if (has_entry(next_entry(at), at))
			return output_usage("%s names %.*s twice",
					    by_option ? "--soft-addresses"
						      : "SENNIT_SOFT_ADDRESSES",
					    (int)strcspn(at, ","), at);
	return STATUS_OK;
}

int perf_shares_make(const struct context_opts *all, struct perf_shares *shares)
{
	const char *list = all->soft_addresses ? all->soft_addresses
					       : secure_getenv("SENNIT_SOFT_ADDRESSES");
	unsigned count = 1;
	int status;

	*shares = (struct perf_shares){ .client = *all, .server = *all };
	if (!list || !*list)
		return STATUS_OK;
	for (const char *at = list; *at; at++)
		count += *at == ',';
	if (count < 2 && takes_soft(all))
		return output_usage(
			"--local needs soft devices for both ends; instead of \"%s\", give "
			"at least two addresses or interfaces, of which each end gets half",
			list);
	if (count < 2)
		return STATUS_OK;
	status = check_once(list, all->soft_addresses);
	if (status)
		return status;
	status = cut_address_list(list, (count + 1) / 2, shares->addresses);
	shares->client.soft_addresses = shares->addresses[0];
	shares->server.soft_addresses = shares->addresses[1];
	return status;
}

void perf_shares_free(struct perf_shares *shares)
{
	free(shares->addresses[0]);
	free(shares->addresses[1]);
}

void perf_take_half(bool second)
{
	cpu_set_t all, half;
	int seen = 0, count;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	count = CPU_COUNT(&all);
	CPU_ZERO(&half);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && (seen++ >= count / 2) == second)
			CPU_SET(i, &half);
	if (count > 1)
		sched_setaffinity(0, sizeof(half), &half);
}
