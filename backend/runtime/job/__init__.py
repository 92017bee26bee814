"""The job as a driver describes it, and what follows from it: the same on boards and launcher."""

from .records import (
    Channel as Channel,
)
from .records import (
    Job as Job,
)
from .records import (
    PlacedSegment as PlacedSegment,
)
from .records import (
    Rank as Rank,
)
from .records import (
    Tensor as Tensor,
)
from .records import (
    load_job as load_job,
)
from .records import (
    make_job as make_job,
)
from .records import (
    rank_name as rank_name,
)
from .records import (
    read_spec as read_spec,
)
from .records import (
    typed_view as typed_view,
)
from .turns import ALL as ALL
from .turns import EACH as EACH
from .turns import MOST_TURNS as MOST_TURNS
from .turns import Steps as Steps
from .turns import Turns as Turns
