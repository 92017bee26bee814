"""The job as a driver describes it, and what follows from it: the same on boards and launcher."""

from .facts import NO_FACTS as NO_FACTS
from .facts import Facts as Facts
from .places import Channel as Channel
from .places import PlacedSegment as PlacedSegment
from .records import (
    Job as Job,
)
from .records import (
    Rank as Rank,
)
from .records import (
    Receive as Receive,
)
from .records import (
    Route as Route,
)
from .records import (
    Segment as Segment,
)
from .records import (
    Send as Send,
)
from .records import (
    Tensor as Tensor,
)
from .records import (
    rank_name as rank_name,
)
from .records import (
    typed_view as typed_view,
)
from .turns import ALL as ALL
from .turns import EACH as EACH
from .turns import MOST_TURNS as MOST_TURNS
from .turns import Steps as Steps
from .turns import Turns as Turns
