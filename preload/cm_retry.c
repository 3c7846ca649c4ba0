/* SPDX-License-Identifier: MIT */
/*
 * A program that connects before the peer listens is refused at once. Other devices
 * take longer to get that far, and programs have come to rely on it: perftest tells its
 * client to connect, and listens after that. So such a refusal counts only if it
 * persists for half a second.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cm.h"

#define TRIES	 25
#define PAUSE_MS 20

static struct snt__link waiting = { &waiting, &waiting };

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

void snt__preload_retry_keep(struct snt__preload_id *id,
			     const struct snt__cm_param *param)
{
	id->param = *param;
	id->param.data = id->param_data;
	if (param->data_length && param->data_length <= sizeof(id->param_data))
		memcpy(id->param_data, param->data, param->data_length);
	id->tries = 0;
}

void snt__preload_retry_forget(struct snt__preload_id *id)
{
	snt__unlink(&id->again);
	free(id->refused);
	id->refused = NULL;
}

void snt__preload_retry_forget_all(void)
{
	while (!snt__list_empty(&waiting))
		snt__preload_retry_forget(
			snt__container(waiting.next, struct snt__preload_id, again));
}

bool snt__preload_retry(struct snt__preload_event *event)
{
	struct snt__preload_id *id = event->soft.id->user;

	if (event->soft.type != SNT__CM_EVENT_REJECTED ||
	    event->soft.reason != SNT__CM_REASON_NOBODY_LISTENS || id->tries == TRIES)
		return false;
	snt__preload_retry_forget(id);
	id->tries++;
	id->refused = event;
	id->again_at = now_ms() + PAUSE_MS;
	snt__list_append(&waiting, &id->again);
	return true;
}

/* The refused soft id is over; another one replaces it. */
static int resolve_again(struct snt__preload_id *id)
{
	const struct snt__cm_table *table = id->soft->cm->table;
	struct sockaddr_storage source, target;
	struct snt__cm_id *next;
	int ret;

	table->addresses(id->soft, &source, &target);
	ret = table->resolve(id->soft->cm, (struct sockaddr *)&source,
			     (struct sockaddr *)&target, 0, &next);
	if (ret)
		return ret;
	table->destroy(id->soft);
	id->soft = next;
	id->soft->user = id;
	return 0;
}

struct snt__preload_event *snt__preload_retry_due(int *timeout_ms_out)
{
	while (!snt__list_empty(&waiting)) {
		struct snt__preload_id *id =
			snt__container(waiting.next, struct snt__preload_id, again);
		int64_t left = id->again_at - now_ms();
		struct snt__preload_event *refused = id->refused;

		if (left > 0) {
			*timeout_ms_out = (int)left;
			return NULL;
		}
		snt__unlink(&id->again);
		if (!resolve_again(id))
			continue;
		id->refused = NULL;
		return refused;
	}
	return NULL;
}

bool snt__preload_retry_resolved(struct snt__preload_event *event)
{
	struct snt__preload_id *id = event->soft.id->user;
	int ret;

	if (event->soft.type != SNT__CM_EVENT_RESOLVED || !id->refused)
		return false;
	ret = id->soft->cm->table->connect(id->soft, &id->param);
	if (ret) {
		event->soft.type = SNT__CM_EVENT_FAILED;
		event->soft.status = ret;
	}
	return !ret;
}
