/* The room's face: what every other room may include. */
#ifndef TB_BASE_H
#define TB_BASE_H

#include "base/buf.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/npy.h"
#include "base/pool.h"
#include "base/utf8.h"

#endif
